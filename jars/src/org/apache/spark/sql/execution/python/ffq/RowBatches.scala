package org.apache.spark.sql.execution.python.ffq

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{GenericInternalRow, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.execution.arrow.ArrowWriter
import org.apache.spark.sql.types.StructType

/**
 * Rows as Arrow batches of a size that suits a writer, whatever the size of a row. Spark's own batches
 * are bounded in bytes by computing the size of all vectors after every row, which takes longer than all
 * else. An UnsafeRow knows its size, so that the vectors are asked only now and then.
 */
private class RowBatches(schema: StructType, arrow: ArrowWriter) {

  private lazy val unsafe = UnsafeProjection.create(schema)
  // Python expects each row inside of another; Arrow is done with one before the next is taken.
  private val outer = new GenericInternalRow(1)

  /** Fill the vectors with the next rows; false if there are none. */
  def next(rows: Iterator[InternalRow]): Boolean = {
    arrow.reset()
    var count = 0
    var bytes = 0L
    var measureAt = RowBatches.Stride
    while (bytes < RowBatches.Bytes && count < ColumnCopy.Rows && rows.hasNext) {
      val row = sized(rows.next())
      outer.update(0, row)
      arrow.write(outer)
      count += 1
      bytes += row.getSizeInBytes
      if (bytes >= measureAt) {
        // Decimals, and structs that are null, take more room in Arrow than in a row.
        bytes = bytes.max(arrow.sizeInBytes())
        measureAt = bytes + RowBatches.Stride
      }
    }
    arrow.finish()
    count > 0
  }

  private def sized(row: InternalRow): UnsafeRow = row match {
    case known: UnsafeRow => known
    case other => unsafe(other)
  }
}

private object RowBatches {

  /** As much as a writer brings into order at once. */
  val Bytes: Long = ColumnBatches.Bytes

  /** Bytes of rows between two looks at the true size. */
  val Stride: Long = Bytes / 32
}
