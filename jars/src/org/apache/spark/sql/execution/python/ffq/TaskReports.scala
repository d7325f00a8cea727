package org.apache.spark.sql.execution.python.ffq

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import org.apache.spark.api.python.{PythonFunction, SimplePythonFunction}
import org.apache.spark.sql.connector.metric.CustomTaskMetric
import org.apache.spark.sql.execution.datasources.v2.python._
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.util.CollectionAccumulator

/**
 * The report that a task of an exchange sends at its end.
 *
 * It arrives as the update of an accumulator, and `text` extracts it. It stays in this JVM and is
 * not sent to the driver. Updates without a report go to the function's own accumulator.
 */
class TaskReports(text: Array[Byte] => Option[String]) {

  @volatile private var report: Option[JsonNode] = None

  def number(name: String): Long =
    report.flatMap(node => Option(node.get(name))).fold(0L)(_.asLong())

  /** Give the function an accumulator that receives the report. */
  def of(function: PythonFunction): PythonFunction = function match {
    case simple: SimplePythonFunction =>
      val others = Option(simple.accumulator)
      simple.copy(accumulator = new CollectionAccumulator[Array[Byte]] {

        override def add(update: Array[Byte]): Unit = text(update) match {
          case Some(json) => report = Some(new ObjectMapper().readTree(json))
          case None => others.foreach(_.add(update))
        }
      })
    case other => other
  }
}

object TaskReports {

  /** New metrics for one Python task. All tasks of a JVM would share Spark's own. */
  def metrics(): Map[String, SQLMetric] =
    PythonCustomMetric.pythonMetrics.map { case (name, shared) =>
      name -> new SQLMetric(shared.metricType)
    }

  /** The values of a task's metrics, as its reader or writer reports them to Spark. */
  def values(
      source: UserDefinedPythonDataSource,
      metrics: Map[String, SQLMetric]): Array[CustomTaskMetric] =
    source.createPythonTaskMetrics(metrics.map { case (name, metric) => name -> metric.value })
}
