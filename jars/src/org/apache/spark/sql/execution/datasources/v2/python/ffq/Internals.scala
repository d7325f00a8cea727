package org.apache.spark.sql.execution.datasources.v2.python.ffq

import org.apache.spark.sql.connector.write.streaming.StreamingWrite
import org.apache.spark.sql.execution.datasources.v2.python.{PythonDataSourceV2, PythonStreamingWrite, UserDefinedPythonDataSource}

/** What Spark shows of a Python source to its own package only, or to nobody. */
object Internals {

  def source(shared: PythonDataSourceV2): UserDefinedPythonDataSource = shared.source

  /** The name of the Python source that a stream writes to, if it is one. */
  def sinkName(write: StreamingWrite): Option[String] = write match {
    case python: PythonStreamingWrite =>
      classOf[PythonStreamingWrite].getDeclaredFields.find(_.getType == classOf[String]).map { field =>
        field.setAccessible(true)
        field.get(python).asInstanceOf[String]
      }
    case _ => None
  }
}
