package io.ffq.spark

import java.lang.reflect.Field
import java.util.Arrays

import org.apache.parquet.column.Dictionary

import org.apache.spark.sql.execution.datasources.parquet.ParquetDictionary
import org.apache.spark.sql.execution.vectorized.{Dictionary => SparkDictionary, WritableColumnVector}
import org.apache.spark.sql.types.{Decimal, StringType}
import org.apache.spark.sql.vectorized.{ColumnVector, ColumnarArray, ColumnarMap}
import org.apache.spark.unsafe.types.UTF8String

/**
 * The strings of a column's dictionary, each made once. Spark's column makes a new one of the same
 * bytes for every row, which is a third of the work of writing Parquet's columns somewhere else.
 */
private class DictionaryStrings {

  private var dictionary: AnyRef = _
  private var strings = new Array[UTF8String](1024)

  /** The column with strings from here, if it has a dictionary; else as it is. */
  def of(column: ColumnVector): ColumnVector = column match {
    case coded: WritableColumnVector if coded.hasDictionary && coded.dataType() == StringType =>
      val own = DictionaryStrings.origin(coded)
      if (own ne dictionary) {
        dictionary = own
        Arrays.fill(strings.asInstanceOf[Array[AnyRef]], null)
      }
      new CodedStrings(coded)
    case other => other
  }

  private class CodedStrings(column: WritableColumnVector) extends ColumnVector(column.dataType()) {

    private val codes = column.getDictionaryIds

    override def getUTF8String(row: Int): UTF8String =
      if (column.isNullAt(row)) null
      else {
        val code = codes.getDictId(row)
        if (code >= strings.length) strings = Arrays.copyOf(strings, code.max(2 * strings.length - 1) + 1)
        val known = strings(code)
        if (known != null) known
        else {
          strings(code) = column.getUTF8String(row)
          strings(code)
        }
      }

    override def isNullAt(row: Int): Boolean = column.isNullAt(row)

    override def hasNull: Boolean = column.hasNull

    override def numNulls(): Int = column.numNulls()

    override def close(): Unit = column.close()

    override def closeIfFreeable(): Unit = column.closeIfFreeable()

    override def getBinary(row: Int): Array[Byte] = column.getBinary(row)

    override def getBoolean(row: Int): Boolean = none

    override def getByte(row: Int): Byte = none

    override def getShort(row: Int): Short = none

    override def getInt(row: Int): Int = none

    override def getLong(row: Int): Long = none

    override def getFloat(row: Int): Float = none

    override def getDouble(row: Int): Double = none

    override def getArray(row: Int): ColumnarArray = none

    override def getMap(row: Int): ColumnarMap = none

    override def getDecimal(row: Int, precision: Int, scale: Int): Decimal = none

    override def getChild(ordinal: Int): ColumnVector = none

    private def none: Nothing = throw new UnsupportedOperationException("a column of strings")
  }
}

private object DictionaryStrings {

  private val ofColumn = field(classOf[WritableColumnVector], classOf[SparkDictionary])
  private val ofParquet = field(classOf[ParquetDictionary], classOf[Dictionary])

  private def field(owner: Class[_], kind: Class[_]): Option[Field] =
    owner.getDeclaredFields.find(_.getType == kind).map { found => found.setAccessible(true); found }

  /**
   * What is the same as long as codes mean the same. Spark wraps Parquet's dictionary, which lasts for
   * a row group, anew for each batch. Where it cannot be found, nothing outlasts a batch.
   */
  def origin(column: WritableColumnVector): AnyRef = ofColumn.map(_.get(column)) match {
    case Some(parquet: ParquetDictionary) => ofParquet.map(_.get(parquet)).getOrElse(new Object)
    case _ => new Object
  }
}
