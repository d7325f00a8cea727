package io.ffq.spark

import io.ffq.spark.Shared.Metric
import org.apache.spark.sql.connector.metric.{CustomMetric, CustomSumMetric, CustomTaskMetric}
import org.apache.spark.sql.execution.datasources.v2.python.PythonCustomMetric

/** The metrics of a scan that Spark's SQL tab shows. */
private[spark] object ScanMetrics {

  private val OfPlan = Seq(
    Metric.PartitionsRead -> "FFQ partitions read",
    Metric.PartitionsPruned -> "FFQ partitions pruned",
    Metric.Parts -> "FFQ parts read",
    Metric.PartsPruned -> "FFQ parts pruned",
    Metric.Replaced -> "FFQ replaced steps ignored")

  private val OfTasks = Seq(
    Metric.Rows -> "FFQ rows read",
    Metric.Requests -> "FFQ requests to storage",
    Metric.WaitedMs -> "FFQ milliseconds waited for credits and storage")

  private val Bytes = Metric.Bytes -> "FFQ bytes read"

  private val Peak = Metric.PeakBytes -> "FFQ most bytes that a task had asked for at one time"

  /** The names of the metrics that tasks report when they end. */
  val reported: Seq[String] = Seq(Bytes._1, Peak._1, Metric.Requests, Metric.WaitedMs)

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
