package org.apache.spark.sql.execution.ffq

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.execution.{QueryExecution, SQLExecution}
import org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionEnd

/** The SQL executions that Spark shows to its own packages only. */
object Internals {

  /** The executions whose thread is inside them now: Spark's own account, which loses nothing. */
  def running(): Map[Long, QueryExecution] = SQLExecution.executionIdToQueryExecution.asScala.toMap

  /** The query of an execution that has ended. */
  def query(end: SparkListenerSQLExecutionEnd): Option[QueryExecution] = Option(end.qe)
}
