package org.apache.spark.sql.execution.python.ffq

import org.apache.arrow.vector.VectorSchemaRoot
import org.apache.arrow.vector.complex.StructVector

import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.vectorized.ColumnarBatch

/**
 * Converts Spark's columnar batches to Arrow batches of a size that suits a writer.
 *
 * It copies whole columns and joins small batches. The Arrow columns are the children of the root's
 * only vector, a struct.
 */
private class ColumnBatches(
    root: VectorSchemaRoot, schema: StructType, input: Iterator[ColumnarBatch]) {

  private val struct = root.getVector(0).asInstanceOf[StructVector]
  struct.setInitialCapacity(ColumnCopy.Rows)
  struct.allocateNew()
  ColumnCopy.allValid(struct.getValidityBuffer)

  private val copies = schema.fields.indices.map { column =>
    val vector = struct.getChildByOrdinal(column).asInstanceOf[org.apache.arrow.vector.FieldVector]
    column -> ColumnCopy.of(schema(column).dataType, vector)
  }
  // The columns that may take fewer rows than offered come first: the others then take as few.
  private val mostLimitedFirst = copies.sortBy {
    case (_, _: ValueCopy) => 0
    case (_, _: StringCopy) => 1
    case _ => 2
  }

  private var batch: ColumnarBatch = _
  private var taken = 0
  // What a column copies beyond the rows that the next column takes is copied again.
  private var offer = ColumnCopy.Rows

  /** Fill the root with the next rows, or return false if no rows are left. */
  def next(): Boolean = {
    mostLimitedFirst.foreach { case (_, copy) => copy.begin() }
    var rows = 0
    var last = false
    while (!last && rows < ColumnCopy.Rows && hasRows) {
      val wanted = (batch.numRows() - taken).min(ColumnCopy.Rows - rows).min(offer)
      val count = mostLimitedFirst.foldLeft(wanted) { case (most, (column, copy)) =>
        copy.append(batch.column(column), taken, most, rows)
      }
      rows += count
      taken += count
      val bytes = mostLimitedFirst.iterator.map(_._2.bytes(rows)).sum
      last = count < wanted || bytes >= ColumnBatches.Bytes
      offer = if (count < wanted) 2 * count.max(ColumnCopy.Stride) else ColumnCopy.Rows
    }
    mostLimitedFirst.foreach { case (_, copy) => copy.end(rows) }
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

  /** The size of the batches that a writer sorts by partition at once. */
  val Bytes: Long = 2 << 20
}
