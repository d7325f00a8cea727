package io.ffq.spark

import java.nio.charset.StandardCharsets.US_ASCII

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import org.apache.spark.sql.types.{MetadataBuilder, StructType}

/**
 * How the rows of a scan are spread over tasks: as few as suit, or one for each of `partitions`, which then may
 * give them in the order of some columns.
 */
private[spark] case class Layout(partitions: Int = 0, order: Seq[String] = Nil)

/** What a scan asks Python to plan; it travels as metadata of the first column. */
private case class PlanRequest(
    layout: Layout = Layout(),
    bounds: Seq[String] = Nil,
    report: Boolean = false,
    filters: Set[Condition] = Set.empty) {

  def mark(columns: StructType): StructType = {
    val mapper = new ObjectMapper
    val document = mapper.createObjectNode()
    document.put("partitions", layout.partitions).put("report", report)
    Seq("order" -> layout.order, "bounds" -> bounds).foreach { case (field, names) =>
      val array = document.putArray(field)
      names.foreach(array.add(_))
    }
    val conditions = document.putArray("filters")
    filters.foreach(_.write(conditions.addObject()))
    val text = mapper.writeValueAsString(document)
    val metadata = new MetadataBuilder().withMetadata(columns.head.metadata).putString("ffq.plan", text).build()
    StructType(columns.head.copy(metadata = metadata) +: columns.tail)
  }
}

/** What a plan says about itself. */
private[spark] class PlanNote(document: JsonNode) {

  /** The columns whose hash decides a row's partition as Spark's own would; empty if none does. */
  val keys: Seq[String] = names("keys")

  /** The columns by which all parts are sorted. */
  val order: Seq[String] = names("order")

  val partitions: Int = document.get("partitions").asInt()

  /** Of each task its parts, rows and bytes. */
  lazy val tasks: IndexedSeq[Seq[Long]] =
    document.get("tasks").elements().asScala.map(_.elements().asScala.map(_.asLong()).toSeq).toIndexedSeq

  /** Whether `rows` is what a count gives. */
  val counts: Boolean = document.get("counts").asBoolean()

  def number(name: String): Long = document.get(name).asLong()

  /** The least value, the greatest, and how many nulls: of columns that were asked for and are known. */
  def bounds(column: String): Option[JsonNode] = Option(document.get("bounds").get(column))

  private def names(field: String): Seq[String] = document.get(field).elements().asScala.map(_.asText()).toSeq
}

private[spark] object PlanNote {

  private val Begin = "\u0001ffq<".getBytes(US_ASCII)
  private val End = ">ffq\u0001".getBytes(US_ASCII)

  /** The note in the place of a plan's first task, if the Python side has put one there. */
  def in(task: Array[Byte]): Option[PlanNote] =
    text(task).filter(_.startsWith("{")).map(text => new PlanNote(new ObjectMapper().readTree(text)))

  /** Whether a task is the one of a partition. */
  def isAt(task: Array[Byte], place: Int, count: Int): Boolean = text(task).contains(s"$place/$count")

  /** Pickles hold bytes as they are: what is between the marks. */
  def text(task: Array[Byte]): Option[String] = {
    val start = task.indexOfSlice(Begin)
    val end = if (start < 0) -1 else task.indexOfSlice(End, start)
    if (end < 0) None else Some(new String(task, start + Begin.length, end - start - Begin.length, US_ASCII))
  }
}

/** A plan as Python made it: the function of all tasks, the tasks, and the note, if there is one. */
private case class ScanPlan(function: Array[Byte], tasks: Seq[Array[Byte]], note: Option[PlanNote])
