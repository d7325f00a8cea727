package org.apache.spark.sql.execution.python.ffq

import org.apache.arrow.memory.ArrowBuf
import org.apache.arrow.vector._

import org.apache.spark.sql.execution.arrow.ArrowWriter
import org.apache.spark.sql.execution.vectorized.WritableColumnVector
import org.apache.spark.sql.types._
import org.apache.spark.sql.vectorized.{ColumnVector, ColumnarBatchRow}
import org.apache.spark.unsafe.Platform

/** Copies rows of a column into an Arrow vector that has room for `ColumnCopy.Rows` of them. */
private trait ColumnCopy {

  /** Start a new batch at row 0. */
  def begin(): Unit

  /**
   * Copy `count` rows of a column from row `from` on, behind the first `at` rows of the batch, and
   * return the number of copied rows. It is smaller than `count` if the batch would grow too large,
   * and 0 only if `at` > 0.
   */
  def append(column: ColumnVector, from: Int, count: Int, at: Int): Int

  /** Finish a batch of this many rows. */
  def end(rows: Int): Unit = ()

  /** The number of bytes of the first rows. */
  def bytes(rows: Int): Long
}

private object ColumnCopy {

  val Rows: Int = 1 << 16
  /** The maximum bytes of strings in a batch; a single string may have more. */
  val Text: Int = 16 << 20
  /** The maximum number of nested values that are copied before their size is measured. */
  val Stride: Int = 64

  def of(dataType: DataType, vector: FieldVector): ColumnCopy = (dataType, vector) match {
    case (LongType | TimestampType | TimestampNTZType, fixed: BaseFixedWidthVector) =>
      new FixedCopy(fixed, Platform.LONG_ARRAY_OFFSET, _.getLongs(_, _))
    case (DoubleType, fixed: BaseFixedWidthVector) =>
      new FixedCopy(fixed, Platform.DOUBLE_ARRAY_OFFSET, _.getDoubles(_, _))
    case (IntegerType | DateType, fixed: BaseFixedWidthVector) =>
      new FixedCopy(fixed, Platform.INT_ARRAY_OFFSET, _.getInts(_, _))
    case (FloatType, fixed: BaseFixedWidthVector) =>
      new FixedCopy(fixed, Platform.FLOAT_ARRAY_OFFSET, _.getFloats(_, _))
    case (ShortType, fixed: BaseFixedWidthVector) =>
      new FixedCopy(fixed, Platform.SHORT_ARRAY_OFFSET, _.getShorts(_, _))
    case (ByteType, fixed: BaseFixedWidthVector) =>
      new FixedCopy(fixed, Platform.BYTE_ARRAY_OFFSET, _.getBytes(_, _))
    case (BooleanType, bits: BitVector) => new BooleanCopy(bits)
    case (_: StringType | BinaryType, text: BaseVariableWidthVector) => new StringCopy(text)
    case _ => new ValueCopy(vector)
  }

  def allValid(bits: ArrowBuf): Unit = bits.setOne(0L, (Rows / 8).toLong)
}

/** Copies values of a fixed width from an array; `origin` is the offset of its first element. */
private class FixedCopy(
    vector: BaseFixedWidthVector, origin: Int, values: (ColumnVector, Int, Int) => AnyRef)
    extends ColumnCopy {

  private val width = vector.getTypeWidth.toLong
  private val zero = new Array[Byte](8)

  override def begin(): Unit = ColumnCopy.allValid(vector.getValidityBuffer)

  override def append(column: ColumnVector, from: Int, count: Int, at: Int): Int = {
    // Only Spark's own column vectors have a value for a null row.
    val hasValueForNull = column.isInstanceOf[WritableColumnVector]
    if (!column.hasNull || hasValueForNull) copy(column, from, count, at)
    if (column.hasNull) (0 until count).foreach { row =>
      if (column.isNullAt(from + row)) {
        BitVectorHelper.unsetBit(vector.getValidityBuffer, at + row)
        Platform.copyMemory(zero, Platform.BYTE_ARRAY_OFFSET, null, address(at + row), width)
      } else if (!hasValueForNull) copy(column, from + row, 1, at + row)
    }
    count
  }

  override def bytes(rows: Int): Long = width * rows

  private def copy(column: ColumnVector, from: Int, count: Int, at: Int): Unit =
    Platform.copyMemory(values(column, from, count), origin, null, address(at), width * count)

  private def address(row: Int): Long = vector.getDataBuffer.memoryAddress() + width * row
}

/** Copies booleans, which Arrow packs into bits. */
private class BooleanCopy(vector: BitVector) extends ColumnCopy {

  override def begin(): Unit = {
    ColumnCopy.allValid(vector.getValidityBuffer)
    vector.getDataBuffer.setZero(0L, (ColumnCopy.Rows / 8).toLong)
  }

  override def append(column: ColumnVector, from: Int, count: Int, at: Int): Int = {
    (0 until count).foreach { row =>
      val target = at + row
      if (column.isNullAt(from + row)) BitVectorHelper.unsetBit(vector.getValidityBuffer, target)
      else if (column.getBoolean(from + row)) {
        BitVectorHelper.setBit(vector.getDataBuffer, target.toLong)
      }
    }
    count
  }

  override def bytes(rows: Int): Long = rows / 8
}

/** Copies strings and byte arrays: the offset of each end, and the concatenated bytes. */
private class StringCopy(vector: BaseVariableWidthVector) extends ColumnCopy {

  private val dictionary = new DictionaryStrings

  override def begin(): Unit = {
    ColumnCopy.allValid(vector.getValidityBuffer)
    vector.getOffsetBuffer.setInt(0, 0)
  }

  override def append(column: ColumnVector, from: Int, count: Int, at: Int): Int = {
    val strings = dictionary.of(column)
    val mayBeNull = column.hasNull
    val ends = vector.getOffsetBuffer.memoryAddress() + 4L * (at + 1)
    var room = vector.getDataBuffer.capacity()
    var data = vector.getDataBuffer.memoryAddress()
    var end = position(at)
    var row = 0
    while (row < count) {
      if (mayBeNull && column.isNullAt(from + row)) {
        BitVectorHelper.unsetBit(vector.getValidityBuffer, at + row)
      } else {
        val string = strings.at(from + row)
        val start = end
        end += string.numBytes()
        if (end > ColumnCopy.Text && at + row > 0) return row
        if (end > room) {
          vector.reallocDataBuffer(end.max(2 * room))
          room = vector.getDataBuffer.capacity()
          data = vector.getDataBuffer.memoryAddress()
        }
        string.writeToMemory(null, data + start)
      }
      Platform.putInt(null, ends + 4L * row, end.toInt)
      row += 1
    }
    count
  }

  /** Set the last row, because Arrow empties the strings behind the last row that it knows. */
  override def end(rows: Int): Unit = vector.setLastSet(rows - 1)

  override def bytes(rows: Int): Long = 4L * rows + position(rows)

  private def position(row: Int): Long = vector.getOffsetBuffer.getInt(4L * row).toLong
}

/** Copies values of all other types one by one, with Spark's own writer. */
private class ValueCopy(vector: FieldVector) extends ColumnCopy {

  private val writer = ArrowWriter.createFieldWriter(vector)
  private var size = 0L

  override def begin(): Unit = {
    writer.reset()
    size = 0L
  }

  /** A nested value has any size, and measuring a vector is slow: measure it after a few rows. */
  override def append(column: ColumnVector, from: Int, count: Int, at: Int): Int = {
    val row = new ColumnarBatchRow(Array(column))
    var copied = 0
    var measureAt = 1
    while (copied < count && size < ColumnBatches.Bytes) {
      while (copied < measureAt.min(count)) {
        row.rowId = from + copied
        writer.write(row, 0)
        copied += 1
      }
      size = writer.getSizeInBytes().toLong
      measureAt += measureAt.min(ColumnCopy.Stride)
    }
    copied
  }

  override def end(rows: Int): Unit = writer.finish()

  override def bytes(rows: Int): Long = size
}
