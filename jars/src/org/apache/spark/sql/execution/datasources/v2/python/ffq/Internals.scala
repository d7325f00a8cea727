package org.apache.spark.sql.execution.datasources.v2.python.ffq

import org.apache.spark.sql.connector.write.streaming.StreamingWrite
import org.apache.spark.sql.execution.datasources.v2.python._

/** Access to members of Python sources that Spark keeps private or restricts to its packages. */
object Internals {

  def source(shared: PythonDataSourceV2): UserDefinedPythonDataSource = shared.source

  /** The name of the Python source to which a stream writes; None for other sinks. */
  def sinkName(write: StreamingWrite): Option[String] = write match {
    case python: PythonStreamingWrite =>
      val fields = classOf[PythonStreamingWrite].getDeclaredFields
      fields.find(_.getType == classOf[String]).map { field =>
        field.setAccessible(true)
        field.get(python).asInstanceOf[String]
      }
    case _ => None
  }
}
