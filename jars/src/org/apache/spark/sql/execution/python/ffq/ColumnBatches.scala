package org.apache.spark.sql.execution.python.ffq

import org.apache.arrow.vector.VectorSchemaRoot
import org.apache.arrow.vector.complex.StructVector

import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.vectorized.ColumnarBatch

/**
 * Spark's columnar batches as Arrow batches of a size that suits a writer: columns are copied whole,
 * and several small batches become one. The Arrow columns are children of the root's only one.
 */
private class ColumnBatches(root: VectorSchemaRoot, schema: StructType, input: Iterator[ColumnarBatch]) {

  private val struct = root.getVector(0).asInstanceOf[StructVector]
  struct.setInitialCapacity(ColumnCopy.Rows)
  struct.allocateNew()
  ColumnCopy.allValid(struct.getValidityBuffer)

  private val copies = schema.fields.indices.map { column =>
    val vector = struct.getChildByOrdinal(column).asInstanceOf[org.apache.arrow.vector.FieldVector]
    column -> ColumnCopy.of(schema(column).dataType, vector)
  }
  // Those first that may take fewer rows than there are: what they leave, nobody else takes.
  private val inOrder = copies.sortBy { case (_, copy) => !copy.isInstanceOf[StringCopy] }

  private var batch: ColumnarBatch = _
  private var taken = 0

  /** Fill the root with the next rows; false if there are none. */
  def next(): Boolean = {
    inOrder.foreach { case (_, copy) => copy.begin() }
    var rows = 0
    var last = false
    while (!last && rows < ColumnCopy.Rows && hasRows) {
      val wanted = (batch.numRows() - taken).min(ColumnCopy.Rows - rows)
      val count = inOrder.foldLeft(wanted) { case (most, (column, copy)) =>
        copy.append(batch.column(column), taken, most, rows)
      }
      rows += count
      taken += count
      last = count < wanted || inOrder.iterator.map(_._2.bytes(rows)).sum >= ColumnBatches.Bytes
    }
    inOrder.foreach { case (_, copy) => copy.end(rows) }
    root.setRowCount(rows)
    rows > 0
  }

  private def hasRows: Boolean = {
    while ((batch == null || taken == batch.numRows()) && { release(); input.hasNext }) {
      batch = input.next()
      taken = 0
    }
    batch != null
  }

  private def release(): Unit = if (batch != null) {
    batch.closeIfFreeable()
    batch = null
  }
}

private object ColumnBatches {

  /** As much as a writer brings into order at once. */
  val Bytes: Long = 2 << 20
}
