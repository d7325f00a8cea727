package io.ffq.spark

import java.util.OptionalLong
import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.sql.connector.expressions.{Expressions, NamedReference}
import org.apache.spark.sql.connector.expressions.filter.Predicate
import org.apache.spark.sql.connector.metric.CustomMetric
import org.apache.spark.sql.connector.read.{Batch, InputPartition, PartitionReaderFactory, Scan, Statistics, SupportsReportStatistics, SupportsRuntimeV2Filtering}
import org.apache.spark.sql.execution.datasources.v2.python.{PythonDataSourceCreationResult, PythonDataSourceV2, PythonInputPartition, PythonPartitionReaderFactory}
import org.apache.spark.sql.execution.datasources.v2.python.ffq.Internals
import org.apache.spark.sql.execution.python.ffq.PythonSettings
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * A scan of an exchange: some columns of one snapshot, pruned by filters that Spark applies again.
 *
 * Two scans of one DataFrame with the same columns and filters are equal, so that Spark reuses the
 * exchanges and broadcasts above them.
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
      (shared eq that.shared) && columns == that.columns && filters == that.filters && options == that.options
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

  /** Where Spark plans the scan itself, without the extension's own node. */
  override def toBatch(): Batch = new Batch {

    override def planInputPartitions(): Array[InputPartition] =
      partitions(plan(Layout()), Layout()).flatten.toArray

    override def createReaderFactory(): PartitionReaderFactory = readers(plan(Layout()))
  }

  /** What Python plans for a layout, once; `more` are filters known only now. */
  def plan(layout: Layout, more: Set[Condition] = Set.empty): ScanPlan =
    plan(PlanRequest(layout, report = isColumnar, filters = filters ++ more))

  private def plan(request: PlanRequest): ScanPlan =
    plans.computeIfAbsent(request, _ => {
      val found = new ScanSource(shared).getOrCreateReadInfo(Settings.Format, options, request.mark(columns), false)
      PlanNote.in(found.partitions.head) match {
        case None => ScanPlan(found.func, found.partitions, None)
        case note => ScanPlan(found.func, found.partitions.tail, note)
      }
    })

  /** The note of the plain plan. */
  def note: Option[PlanNote] = plan(Layout()).note

  /** A note with the bounds of columns. */
  def noteOf(bounds: Seq[String]): Option[PlanNote] = plan(PlanRequest(bounds = bounds, filters = filters)).note

  /** The input of each task, or none for a partition without rows. */
  def partitions(plan: ScanPlan, layout: Layout): Seq[Option[InputPartition]] = {
    val count = layout.partitions
    val sizes = plan.note.map(_.tasks)
    if (count > 0 && (plan.tasks.length != count || sizes.isEmpty)) misplaced(layout)
    plan.tasks.zipWithIndex.map { case (task, index) =>
      if (count > 0 && !PlanNote.isAt(task, index, count)) misplaced(layout)
      if (sizes.exists(_(index).head == 0)) None else Some(PythonInputPartition(index, task))
    }
  }

  private def misplaced(layout: Layout): Nothing = throw new IllegalStateException(
    s"[FFQ_MISPLACED] the tasks of a scan of ${options.get("path")} are not those of ${layout.partitions} " +
      "partitions in their order; set spark.ffq.planner.enabled=false and report this")

  def readers(plan: ScanPlan): PartitionReaderFactory = {
    val settings = PythonSettings.current()
    val python = Internals.source(shared)
    if (isColumnar) new ColumnReaders(python, plan.function, columns, settings)
    else new PythonPartitionReaderFactory(python, plan.function, columns, settings.artifacts, None)
  }

  override def estimateStatistics(): Statistics = new Statistics {

    override def sizeInBytes(): OptionalLong =
      note.fold(OptionalLong.empty())(n => OptionalLong.of((n.number("bytes") * share).ceil.toLong))

    override def numRows(): OptionalLong = note.fold(OptionalLong.empty())(n => OptionalLong.of(n.number("rows")))
  }

  override def filterAttributes(): Array[NamedReference] =
    note.fold(Array.empty[NamedReference])(_.keys.filter(columns.fieldNames.contains).map(column).toArray)

  /** Spark reads the name as SQL. */
  private def column(name: String): NamedReference = Expressions.column(s"`${name.replace("`", "``")}`")

  /** The extension's node plans anew with these; a scan stays as it is, for it may be used twice. */
  override def filter(predicates: Array[Predicate]): Unit = ()
}

/** The plan of one scan over a Python source that several share. */
private class ScanSource(shared: PythonDataSourceV2) extends PythonDataSourceV2 {

  setShortName(Settings.Format)

  /** Without a schema Python is asked for its own, and remembers what snapshot that was of. */
  override def getOrCreateDataSourceInPython(
      shortName: String,
      options: CaseInsensitiveStringMap,
      userSpecifiedSchema: Option[StructType]): PythonDataSourceCreationResult =
    shared.getOrCreateDataSourceInPython(shortName, options, None)
}
