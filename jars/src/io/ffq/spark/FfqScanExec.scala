package io.ffq.spark

import io.ffq.spark.Shared.Source
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.QueryPlan
import org.apache.spark.sql.catalyst.plans.physical._
import org.apache.spark.sql.catalyst.util.truncatedString
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReaderFactory}
import org.apache.spark.sql.execution.InSubqueryExec
import org.apache.spark.sql.execution.datasources.v2.{DataSourceRDD, DataSourceV2ScanExecBase}

/**
 * Reads an exchange.
 *
 * If it is partitioned, task i reads exactly the rows whose keys Spark's hash assigns to
 * partition i, and the node reports that partitioning: grouping and joining by the keys need no
 * shuffle.
 */
case class FfqScanExec(
    output: Seq[AttributeReference],
    @transient scan: ExchangeScan,
    runtimeFilters: Seq[Expression],
    partitioning: ScanPartitioning)
    extends DataSourceV2ScanExecBase {

  override def keyGroupedPartitioning: Option[Seq[Expression]] = None

  override def ordering: Option[Seq[SortOrder]] = None

  @transient override lazy val outputPartitioning: Partitioning =
    if (partitioning.partitions > 0) new ExchangePartitioning(keys.get, partitioning.partitions)
    else UnknownPartitioning(0)

  override def outputOrdering: Seq[SortOrder] =
    partitioning.order.flatMap(column).map(SortOrder(_, Ascending))

  /** The exchange's keys, if the scan outputs all of them and Spark may rely on their hash. */
  def keys: Option[Seq[Attribute]] = scan.note.filter(_.keys.nonEmpty).flatMap { note =>
    val columns = note.keys.flatMap(column)
    val isComplete = columns.length == note.keys.length
    if (isComplete && columns.forall(key => FfqScanExec.isPlain(key.dataType))) Some(columns)
    else None
  }

  def withPartitioning(partitioning: ScanPartitioning): FfqScanExec = {
    val copied = copy(partitioning = partitioning)
    logicalLink.foreach(copied.setLogicalLink)
    copied
  }

  /** The order of a merge of the sorted parts. */
  def storedOrder: Seq[String] = scan.note.toSeq.flatMap { note =>
    note.order.takeWhile(name => column(name).exists(c => FfqScanExec.isOrdered(c.dataType)))
  }

  private def column(name: String): Option[Attribute] = output.find(_.name == name)

  /** The name of a column in the exchange; a query may spell it in another case. */
  def nameOf(column: Attribute): Option[String] =
    output.find(_.exprId == column.exprId).map(_.name)

  @transient private lazy val plan: ScanPlan =
    scan.plan(partitioning, runtimeFilters.flatMap(condition).toSet)

  /** A filter with values that became known at run time; other filters prune nothing. */
  private def condition(filter: Expression): Option[Condition] = filter match {
    case DynamicPruningExpression(in @ InSubqueryExec(column: Attribute, _, _, _, _, _)) =>
      for {
        values <- in.values() if values.length <= FfqScanExec.MaxRuntimeValues
        name <- nameOf(column)
        condition <- Condition.among(name, values.toSeq.map(Literal(_, column.dataType)))
      } yield condition
    case _ => None
  }

  @transient private lazy val tasks: Seq[Option[InputPartition]] =
    scan.partitions(plan, partitioning)

  @transient override protected lazy val inputPartitions: Seq[InputPartition] = tasks.flatten

  @transient override lazy val readerFactory: PartitionReaderFactory = scan.readers(plan)

  @transient override lazy val inputRDD: RDD[InternalRow] = {
    val rdd = new DataSourceRDD(
      sparkContext, tasks, readerFactory, supportsColumnar, customMetrics)
    plan.note.foreach(note => postDriverMetrics(ScanMetrics.ofPlan(note)))
    rdd
  }

  override protected def doCanonicalize(): FfqScanExec = copy(
    output = output.map(QueryPlan.normalizeExpressions(_, output)),
    runtimeFilters = QueryPlan.normalizePredicates(
      runtimeFilters.filterNot(_ == DynamicPruningExpression(Literal.TrueLiteral)), output))

  override def nodeName: String = s"FfqScan ${Source.Format}"

  override def simpleString(maxFields: Int): String = {
    val columns = truncatedString(output, "[", ", ", "]", maxFields)
    val order = partitioning.order
    val partitions =
      if (partitioning.partitions > 0) s" ${partitioning.partitions} partitions" else ""
    val verb = if (storedOrder.startsWith(order)) "ordered" else "sorted"
    val sorted = if (order.isEmpty) "" else s" $verb by ${order.mkString("[", ", ", "]")}"
    val runtime =
      if (runtimeFilters.isEmpty) ""
      else s" RuntimeFilters: ${runtimeFilters.mkString("[", ", ", "]")}"
    redact(s"$nodeName$columns ${scan.description()}$partitions$sorted$runtime")
  }
}

object FfqScanExec {

  import org.apache.spark.sql.types._

  /** Key types for which equal values have equal bytes, and therefore equal hashes. */
  def isPlain(dataType: DataType): Boolean = dataType match {
    case ByteType | ShortType | IntegerType | LongType | _: DecimalType | BooleanType |
        BinaryType | DateType | TimestampType | TimestampNTZType | _: DayTimeIntervalType => true
    // The object matches only strings without a collation.
    case StringType => true
    case _ => false
  }

  /** Types whose order in Arrow is Spark's. */
  def isOrdered(dataType: DataType): Boolean = dataType match {
    case FloatType | DoubleType => true
    case other => isPlain(other)
  }

  /** More keys than this hit nearly every partition, and hashing them takes longer than reading. */
  private val MaxRuntimeValues = 4096
}
