package org.apache.spark.sql.execution.python.ffq

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{GenericInternalRow, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.execution.arrow.ArrowWriter
import org.apache.spark.sql.types.StructType

/**
 * Converts rows to Arrow batches of a size that suits a writer, whatever the size of a row.
 *
 * Spark limits the bytes of a batch by computing the size of all vectors after every row, which
 * takes most of the time of a write. An UnsafeRow knows its size, so vectors are measured rarely.
 */
private class RowBatches(schema: StructType, arrow: ArrowWriter) {

  private lazy val unsafe = UnsafeProjection.create(schema)
  // Python expects each row nested in another. Arrow copies a row at once, so one is reused.
  private val outer = new GenericInternalRow(1)

  /** Fill the vectors with the next rows, or return false if no rows are left. */
  def next(rows: Iterator[InternalRow]): Boolean = {
    arrow.reset()
    var count = 0
    var bytes = 0L
    var measureAt = RowBatches.Stride
    while (bytes < RowBatches.Bytes && count < ColumnCopy.Rows && rows.hasNext) {
      val row = unsafeRow(rows.next())
      outer.update(0, row)
      arrow.write(outer)
      count += 1
      bytes += row.getSizeInBytes
      if (bytes >= measureAt) {
        // Decimals and null structs take more bytes in Arrow than in a row.
        bytes = bytes.max(arrow.sizeInBytes())
        measureAt = bytes + RowBatches.Stride
      }
    }
    arrow.finish()
    count > 0
  }

  private def unsafeRow(row: InternalRow): UnsafeRow = row match {
    case known: UnsafeRow => known
    case other => unsafe(other)
  }
}

private object RowBatches {

  /** The size of the batches that a writer sorts by partition at once. */
  val Bytes: Long = ColumnBatches.Bytes

  /** Bytes of rows after which the vectors are measured again. */
  val Stride: Long = Bytes / 32
}
