package org.apache.spark.sql.execution.python.ffq

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import org.apache.spark.api.python.{PythonFunction, SimplePythonFunction}
import org.apache.spark.sql.execution.datasources.v2.python.PythonCustomMetric
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.util.CollectionAccumulator

/**
 * What a task of an exchange tells at its end: it comes as the update of an accumulator, which only this
 * task's own JVM looks at; `text` finds it. Updates of other accumulators go where they went before.
 */
class TaskReports(text: Array[Byte] => Option[String]) {

  @volatile private var found: Option[JsonNode] = None

  def number(name: String): Long = found.flatMap(node => Option(node.get(name))).fold(0L)(_.asLong())

  /** The function, with an accumulator that listens. */
  def of(function: PythonFunction): PythonFunction = function match {
    case simple: SimplePythonFunction =>
      val others = Option(simple.accumulator)
      simple.copy(accumulator = new CollectionAccumulator[Array[Byte]] {

        override def add(update: Array[Byte]): Unit = text(update) match {
          case Some(report) => found = Some(new ObjectMapper().readTree(report))
          case None => others.foreach(_.add(update))
        }
      })
    case other => other
  }
}

object TaskReports {

  /** What Spark counts of a Python task, from 0: its own are shared by all tasks of a JVM. */
  def metrics(): Map[String, SQLMetric] =
    PythonCustomMetric.pythonMetrics.map { case (name, shared) => name -> new SQLMetric(shared.metricType) }
}
