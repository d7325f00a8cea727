package org.apache.spark.sql.execution.python.ffq

import java.lang.reflect.Field
import java.util.Arrays

import org.apache.parquet.column.Dictionary

import org.apache.spark.sql.execution.datasources.parquet.ParquetDictionary
import org.apache.spark.sql.execution.vectorized.{Dictionary => SparkDictionary, WritableColumnVector}
import org.apache.spark.sql.types.BinaryType
import org.apache.spark.sql.vectorized.ColumnVector
import org.apache.spark.unsafe.types.UTF8String

/** The strings of one column, or byte arrays as if they were; not for rows that are null. */
private trait Strings {

  def at(row: Int): UTF8String
}

/**
 * The strings of a column's dictionary, each made once. Spark's column makes a new one of the same
 * bytes for every row, which is a third of the work of writing Parquet's columns somewhere else.
 */
private class DictionaryStrings {

  private var dictionary: AnyRef = _
  private var strings = new Array[UTF8String](1024)

  def of(column: ColumnVector): Strings = column match {
    case bytes if bytes.dataType() == BinaryType => row => UTF8String.fromBytes(bytes.getBinary(row))
    case coded: WritableColumnVector if coded.hasDictionary =>
      val own = DictionaryStrings.origin(coded)
      if (own ne dictionary) {
        dictionary = own
        Arrays.fill(strings.asInstanceOf[Array[AnyRef]], null)
      }
      decoded(coded)
    case plain => row => plain.getUTF8String(row)
  }

  private def decoded(column: WritableColumnVector): Strings = {
    val codes = column.getDictionaryIds
    row => {
      val code = codes.getDictId(row)
      if (code >= strings.length) strings = Arrays.copyOf(strings, code.max(2 * strings.length - 1) + 1)
      val known = strings(code)
      if (known != null) known
      else {
        strings(code) = column.getUTF8String(row)
        strings(code)
      }
    }
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
  private def origin(column: WritableColumnVector): AnyRef = ofColumn.map(_.get(column)) match {
    case Some(parquet: ParquetDictionary) => ofParquet.map(_.get(parquet)).getOrElse(new Object)
    case _ => new Object
  }
}
