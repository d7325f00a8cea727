package io.ffq.spark

import java.util.OptionalLong
import java.util.concurrent.ConcurrentHashMap

import io.ffq.spark.Shared.{ErrorCode, Metric, Source}
import org.apache.spark.sql.connector.expressions.{Expressions, NamedReference}
import org.apache.spark.sql.connector.expressions.filter.Predicate
import org.apache.spark.sql.connector.metric.CustomMetric
import org.apache.spark.sql.connector.read._
import org.apache.spark.sql.execution.datasources.v2.python._
import org.apache.spark.sql.execution.datasources.v2.python.ffq.Internals
import org.apache.spark.sql.execution.python.ffq.PythonSettings
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * A scan of some columns of one snapshot of an exchange. Filters only prune; Spark applies them
 * again.
 *
 * Two scans of one DataFrame with the same columns and filters are equal, so that Spark reuses the
 * shuffles and broadcasts above them.
 */
private[spark] case class ExchangeScan(
    columns: StructType,
    filters: Set[Condition],
    options: CaseInsensitiveStringMap)(source: PythonDataSourceV2, share: Double)
    extends Scan with SupportsReportStatistics with SupportsRuntimeV2Filtering {

  private val plans = new ConcurrentHashMap[PlanRequest, ScanPlan]

  private val shared = source

  override def equals(other: Any): Boolean = other match {
    case that: ExchangeScan =>
      (shared eq that.shared) && columns == that.columns && filters == that.filters &&
      options == that.options
    case _ => false
  }

  override def hashCode(): Int = (System.identityHashCode(shared), columns, filters).hashCode()

  override def readSchema(): StructType = columns

  override def description(): String = "ffqshuffle " + columns.fieldNames.mkString("[", ", ", "]") +
    (if (filters.isEmpty) "" else filters.mkString(" pruned by [", ", ", "]"))

  override def supportedCustomMetrics(): Array[CustomMetric] =
    Internals.source(shared).createPythonMetrics() ++ ScanMetrics.all

  override def columnarSupportMode(): Scan.ColumnarSupportMode =
    if (isColumnar) Scan.ColumnarSupportMode.SUPPORTED else Scan.ColumnarSupportMode.UNSUPPORTED

  private def isColumnar: Boolean = ColumnReaders.canRead(columns)

  /** Spark uses this where it plans the scan itself, without [[FfqScanExec]]. */
  override def toBatch(): Batch = new Batch {

    override def planInputPartitions(): Array[InputPartition] =
      partitions(plan(ScanPartitioning()), ScanPartitioning()).flatten.toArray

    override def createReaderFactory(): PartitionReaderFactory = readers(plan(ScanPartitioning()))
  }

  /** Plan the scan in Python, once per partitioning and set of filters known at run time. */
  def plan(partitioning: ScanPartitioning, runtimeFilters: Set[Condition] = Set.empty): ScanPlan =
    plan(PlanRequest(partitioning, report = isColumnar, filters = filters ++ runtimeFilters))

  private def plan(request: PlanRequest): ScanPlan =
    plans.computeIfAbsent(request, _ => {
      val info = new ScanSource(shared)
        .getOrCreateReadInfo(Source.Format, options, request.addTo(columns), false)
      PlanNote.in(info.partitions.head) match {
        case None => ScanPlan(info.func, info.partitions, None)
        case note => ScanPlan(info.func, info.partitions.tail, note)
      }
    })

  /** The note of the plan without partitioning. */
  def note: Option[PlanNote] = plan(ScanPartitioning()).note

  /** The note of a plan that includes the bounds of columns. */
  def noteWithBounds(columns: Seq[String]): Option[PlanNote] =
    plan(PlanRequest(bounds = columns, filters = filters)).note

  /** The input of each task, or None for a partition without rows. */
  def partitions(plan: ScanPlan, partitioning: ScanPartitioning): Seq[Option[InputPartition]] = {
    val count = partitioning.partitions
    val sizes = plan.note.map(_.tasks)
    if (count > 0 && (plan.tasks.length != count || sizes.isEmpty)) refuseTasks(count)
    plan.tasks.zipWithIndex.map { case (task, index) =>
      if (count > 0 && !PlanNote.isOfPartition(task, index, count)) refuseTasks(count)
      if (sizes.exists(_(index).head == 0)) None else Some(PythonInputPartition(index, task))
    }
  }

  private def refuseTasks(partitions: Int): Nothing = throw new IllegalStateException(
    s"[${ErrorCode.Misplaced}] the tasks of a scan of ${options.get(Source.Path)} " +
      s"are not its $partitions partitions in ascending order; " +
      "set spark.ffq.planner.enabled=false and report this")

  def readers(plan: ScanPlan): PartitionReaderFactory = {
    val settings = PythonSettings.current()
    val python = Internals.source(shared)
    if (isColumnar) new ColumnReaders(python, plan.function, columns, settings)
    else new PythonPartitionReaderFactory(python, plan.function, columns, settings.artifacts, None)
  }

  override def estimateStatistics(): Statistics = new Statistics {

    override def sizeInBytes(): OptionalLong =
      known(note => (note.number(Metric.Bytes) * share).ceil.toLong)

    override def numRows(): OptionalLong = known(_.number(Metric.Rows))

    private def known(value: PlanNote => Long): OptionalLong =
      note.fold(OptionalLong.empty())(note => OptionalLong.of(value(note)))
  }

  override def filterAttributes(): Array[NamedReference] =
    note.fold(Array.empty[NamedReference]) { note =>
      note.keys.filter(columns.fieldNames.contains).map(column).toArray
    }

  /** Spark parses the name as SQL, so it is quoted. */
  private def column(name: String): NamedReference =
    Expressions.column(s"`${name.replace("`", "``")}`")

  /** Ignore runtime filters: [[FfqScanExec]] plans with them. A scan may be used twice. */
  override def filter(predicates: Array[Predicate]): Unit = ()
}

/** Plans one scan of a Python source that several scans share. */
private class ScanSource(shared: PythonDataSourceV2) extends PythonDataSourceV2 {

  setShortName(Source.Format)

  /** Without a user's schema Python returns its own, and remembers the snapshot it is of. */
  override def getOrCreateDataSourceInPython(
      shortName: String,
      options: CaseInsensitiveStringMap,
      userSpecifiedSchema: Option[StructType]): PythonDataSourceCreationResult =
    shared.getOrCreateDataSourceInPython(shortName, options, None)
}
