package io.ffq.spark

import java.nio.charset.StandardCharsets.US_ASCII

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import io.ffq.spark.Shared.PlanField
import org.apache.spark.sql.types.{MetadataBuilder, StructType}

/**
 * How a scan distributes its rows over tasks.
 *
 * With `partitions` = 0 the planner makes as few tasks as suit. Otherwise each partition is one
 * task, and `order` names the columns by which its rows are sorted.
 */
private[spark] case class ScanPartitioning(partitions: Int = 0, order: Seq[String] = Nil)

/** What a scan asks Python to plan. It is sent as metadata of the first column. */
private case class PlanRequest(
    partitioning: ScanPartitioning = ScanPartitioning(),
    bounds: Seq[String] = Nil,
    report: Boolean = false,
    filters: Set[Condition] = Set.empty) {

  /** Add the request to the first column's metadata. */
  def addTo(columns: StructType): StructType = {
    val metadata = new MetadataBuilder()
      .withMetadata(columns.head.metadata)
      .putString(PlanField.Request, json)
      .build()
    StructType(columns.head.copy(metadata = metadata) +: columns.tail)
  }

  private def json: String = {
    val mapper = new ObjectMapper
    val document = mapper.createObjectNode()
    document.put(PlanField.Partitions, partitioning.partitions).put(PlanField.Report, report)
    val columns = Seq(PlanField.Order -> partitioning.order, PlanField.Bounds -> bounds)
    columns.foreach { case (field, names) =>
      val array = document.putArray(field)
      names.foreach(array.add(_))
    }
    val conditions = document.putArray(PlanField.Filters)
    filters.foreach(_.write(conditions.addObject()))
    mapper.writeValueAsString(document)
  }
}

/** The note that Python's planner attaches to a plan. */
private[spark] class PlanNote(document: JsonNode) {

  /** The columns whose hash places a row as Spark's own shuffle would; empty if none does. */
  val keys: Seq[String] = names(PlanField.Keys)

  /** The columns by which all parts are sorted. */
  val order: Seq[String] = names(PlanField.Order)

  val partitions: Int = document.get(PlanField.Partitions).asInt()

  /** The number of parts, rows and bytes of each task. */
  lazy val tasks: IndexedSeq[Seq[Long]] = document.get(PlanField.Tasks).elements().asScala
    .map(_.elements().asScala.map(_.asLong()).toSeq).toIndexedSeq

  /** Whether `rows` is exact, so that it answers a count. */
  val counts: Boolean = document.get(PlanField.Counts).asBoolean()

  def number(name: String): Long = document.get(name).asLong()

  /** The minimum, maximum and number of nulls of a requested column, if they are known. */
  def bounds(column: String): Option[JsonNode] = Option(document.get(PlanField.Bounds).get(column))

  private def names(field: String): Seq[String] =
    document.get(field).elements().asScala.map(_.asText()).toSeq
}

private[spark] object PlanNote {

  private val Begin = PlanField.Begin.getBytes(US_ASCII)
  private val End = PlanField.End.getBytes(US_ASCII)

  /** Read the note that Python puts in front of a plan's tasks, if this is one. */
  def in(task: Array[Byte]): Option[PlanNote] = text(task)
    .filter(_.startsWith("{"))
    .map(json => new PlanNote(new ObjectMapper().readTree(json)))

  /** Whether a task is marked as the one that reads a partition. */
  def isOfPartition(task: Array[Byte], partition: Int, count: Int): Boolean =
    text(task).contains(s"$partition/$count")

  /** The text between the marks. Pickles contain byte strings unchanged. */
  def text(task: Array[Byte]): Option[String] = {
    val start = task.indexOfSlice(Begin)
    val end = if (start < 0) -1 else task.indexOfSlice(End, start)
    val from = start + Begin.length
    if (end < 0) None else Some(new String(task, from, end - from, US_ASCII))
  }
}

/** A plan made by Python: the function of all tasks, the tasks, and the note if there is one. */
private case class ScanPlan(function: Array[Byte], tasks: Seq[Array[Byte]], note: Option[PlanNote])
