package io.ffq.spark

import org.apache.spark.sql.connector.metric.{CustomMetric, CustomSumMetric, CustomTaskMetric}
import org.apache.spark.sql.execution.datasources.v2.python.PythonCustomMetric

/** The metrics of a scan that Spark's SQL tab shows. */
private[spark] object ScanMetrics {

  private val OfPlan = Seq(
    "partitions_read" -> "FFQ partitions read",
    "partitions_pruned" -> "FFQ partitions pruned",
    "parts" -> "FFQ parts read",
    "parts_pruned" -> "FFQ parts pruned",
    "replaced" -> "FFQ replaced steps ignored")

  private val OfTasks = Seq(
    "rows" -> "FFQ rows read",
    "requests" -> "FFQ requests to storage",
    "waited_ms" -> "FFQ milliseconds waited for credits and storage")

  private val Bytes = "bytes" -> "FFQ bytes read"

  private val Peak = "peak_bytes" -> "FFQ most bytes that a task had asked for at one time"

  /** The names of the metrics that tasks report when they end. */
  val reported: Seq[String] = Seq(Bytes._1, Peak._1, "requests", "waited_ms")

  def all: Array[CustomMetric] =
    ((OfPlan ++ OfTasks).map { case (name, text) => new ScanSum(key(name), text): CustomMetric } :+
      new PythonCustomMetric(key(Bytes._1), Bytes._2) :+
      new ScanMost(key(Peak._1), Peak._2)).toArray

  def ofPlan(note: PlanNote): Array[CustomTaskMetric] =
    OfPlan.map { case (name, _) => task(name, note.number(name)) }.toArray

  def task(metric: String, reported: Long): CustomTaskMetric = new CustomTaskMetric {

    override def name(): String = key(metric)

    override def value(): Long = reported
  }

  private def key(name: String): String = s"ffq_$name"
}

/** A sum over tasks. Spark creates a nameless instance to add up values. */
class ScanSum(override val name: String, override val description: String) extends CustomSumMetric {

  def this() = this(null, null)
}

/** The maximum over tasks. Spark creates a nameless instance to compare values. */
class ScanMost(override val name: String, override val description: String) extends CustomMetric {

  def this() = this(null, null)

  override def aggregateTaskMetrics(values: Array[Long]): String =
    values.maxOption.getOrElse(0L).toString
}
