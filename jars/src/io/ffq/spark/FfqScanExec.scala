package io.ffq.spark

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.QueryPlan
import org.apache.spark.sql.catalyst.plans.physical.{HashPartitioning, Partitioning, UnknownPartitioning}
import org.apache.spark.sql.catalyst.util.truncatedString
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReaderFactory}
import org.apache.spark.sql.execution.InSubqueryExec
import org.apache.spark.sql.execution.datasources.v2.{DataSourceRDD, DataSourceV2ScanExecBase}

/**
 * Reads an exchange. With a layout of partitions, task i has exactly the rows whose keys Spark's hash
 * puts into partition i, and says so: what is grouped or joined by the keys needs no exchange.
 */
case class FfqScanExec(
    output: Seq[AttributeReference],
    @transient scan: ExchangeScan,
    runtimeFilters: Seq[Expression],
    layout: Layout)
    extends DataSourceV2ScanExecBase {

  override def keyGroupedPartitioning: Option[Seq[Expression]] = None

  override def ordering: Option[Seq[SortOrder]] = None

  @transient override lazy val outputPartitioning: Partitioning =
    if (layout.partitions > 0) HashPartitioning(keys.get, layout.partitions) else UnknownPartitioning(0)

  override def outputOrdering: Seq[SortOrder] = layout.order.flatMap(column).map(SortOrder(_, Ascending))

  /** The exchange's keys, if all of them are read and Spark may rely on their hash. */
  def keys: Option[Seq[Attribute]] = scan.note.filter(_.keys.nonEmpty).flatMap { note =>
    val found = note.keys.flatMap(column)
    if (found.length == note.keys.length && found.forall(key => FfqScanExec.isPlain(key.dataType))) Some(found) else None
  }

  /** The order that a merge of the sorted parts has. */
  def storedOrder: Seq[String] = scan.note.toSeq.flatMap { note =>
    note.order.takeWhile(name => column(name).exists(found => FfqScanExec.isOrdered(found.dataType)))
  }

  private def column(name: String): Option[Attribute] = output.find(_.name == name)

  /** The column's own name: a query may spell it in other cases. */
  def nameOf(column: Attribute): Option[String] = output.find(_.exprId == column.exprId).map(_.name)

  @transient private lazy val plan: ScanPlan = scan.plan(layout, runtimeFilters.flatMap(condition).toSet)

  /** A filter that became known at run time; others prune nothing. */
  private def condition(filter: Expression): Option[Condition] = filter match {
    case DynamicPruningExpression(in @ InSubqueryExec(column: Attribute, _, _, _, _, _)) =>
      for {
        values <- in.values() if values.length <= FfqScanExec.MostValues
        name <- nameOf(column)
        condition <- Condition.among(name, values.toSeq.map(Literal(_, column.dataType)))
      } yield condition
    case _ => None
  }

  @transient private lazy val tasks: Seq[Option[InputPartition]] = scan.partitions(plan, layout)

  @transient override protected lazy val inputPartitions: Seq[InputPartition] = tasks.flatten

  @transient override lazy val readerFactory: PartitionReaderFactory = scan.readers(plan)

  @transient override lazy val inputRDD: RDD[InternalRow] = {
    val rdd = new DataSourceRDD(sparkContext, tasks, readerFactory, supportsColumnar, customMetrics)
    plan.note.foreach(note => postDriverMetrics(ScanMetrics.ofPlan(note)))
    rdd
  }

  override protected def doCanonicalize(): FfqScanExec = copy(
    output = output.map(QueryPlan.normalizeExpressions(_, output)),
    runtimeFilters = QueryPlan.normalizePredicates(
      runtimeFilters.filterNot(_ == DynamicPruningExpression(Literal.TrueLiteral)), output))

  override def nodeName: String = s"FfqScan ${Settings.Format}"

  override def simpleString(maxFields: Int): String = {
    val columns = truncatedString(output, "[", ", ", "]", maxFields)
    val spread = if (layout.partitions > 0) s" ${layout.partitions} partitions" else ""
    val how = if (storedOrder.startsWith(layout.order)) "ordered" else "sorted"
    val sorted = if (layout.order.isEmpty) "" else s" $how by ${layout.order.mkString("[", ", ", "]")}"
    val runtime = if (runtimeFilters.isEmpty) "" else s" RuntimeFilters: ${runtimeFilters.mkString("[", ", ", "]")}"
    redact(s"$nodeName$columns ${scan.description()}$spread$sorted$runtime")
  }
}

object FfqScanExec {

  import org.apache.spark.sql.types._

  /** Key types whose equal values have equal bytes, and so one hash. */
  def isPlain(kind: DataType): Boolean = kind match {
    case ByteType | ShortType | IntegerType | LongType | _: DecimalType | BooleanType | BinaryType | DateType |
        TimestampType | TimestampNTZType | _: DayTimeIntervalType => true
    // Without a collation, that is.
    case StringType => true
    case _ => false
  }

  /** Types whose order in Arrow is Spark's. */
  def isOrdered(kind: DataType): Boolean = kind match {
    case FloatType | DoubleType => true
    case other => isPlain(other)
  }

  /** More keys than this meet nearly every partition, and take longer to hash than to read. */
  private val MostValues = 4096
}
