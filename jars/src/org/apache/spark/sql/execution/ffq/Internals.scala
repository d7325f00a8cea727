package org.apache.spark.sql.execution.ffq

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.execution.{QueryExecution, SQLExecution}
import org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionEnd

/** Access to SQL executions that Spark restricts to its own packages. */
object Internals {

  /** The running executions, from Spark's own map, which is complete. */
  def running(): Map[Long, QueryExecution] = SQLExecution.executionIdToQueryExecution.asScala.toMap

  /** The query of an ended execution. */
  def query(end: SparkListenerSQLExecutionEnd): Option[QueryExecution] = Option(end.qe)
}
