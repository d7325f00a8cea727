package io.ffq.spark

import java.time.{Instant, LocalDate, LocalDateTime, ZoneOffset}

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.connector.catalog.{SupportsRead, Table, TableCapability}
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation
import org.apache.spark.sql.connector.read.{Scan, ScanBuilder, SupportsPushDownAggregates, SupportsPushDownFilters, SupportsPushDownRequiredColumns}
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.execution.datasources.v2.python.{PythonDataSourceV2, PythonTable}
import org.apache.spark.sql.sources._
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** Reads of an exchange go through [[ExchangeTable]]. */
private object OwnPlans extends Rule[LogicalPlan] {

  override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperators {
    case relation @ DataSourceV2Relation(table: PythonTable, _, _, _, _, _) if table.name() == Settings.Format =>
      ExchangeTable.of(table).fold(relation)(own => relation.copy(table = own))
  }
}

/**
 * An exchange as a table whose scans are planned one by one.
 *
 * Spark keeps one plan for a Python source and gives it to all scans of a DataFrame, pruned by the
 * filters of whichever came first. Here each scan has a plan of its own, so that filters may prune,
 * and asks for the columns it needs. The Python source itself stays one for the DataFrame: it
 * remembers the snapshot.
 */
private class ExchangeTable(table: PythonTable, source: PythonDataSourceV2) extends Table with SupportsRead {

  override def name(): String = table.name()

  override def schema(): StructType = table.schema()

  override def capabilities(): java.util.Set[TableCapability] = table.capabilities()

  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder =
    new ExchangeScanBuilder(source, schema(), options)
}

private object ExchangeTable {

  /** Whether Python has all values of a filter: its years are 1 to 9999. */
  def isKnownToPython(filter: Filter): Boolean = filter.asInstanceOf[Product].productIterator.forall(isKnown)

  private def isKnown(value: Any): Boolean = value match {
    case day: LocalDate => day.getYear >= 1 && day.getYear <= 9999
    case day: java.sql.Date => isKnown(day.toLocalDate)
    case time: LocalDateTime => isKnown(time.toLocalDate)
    case time: Instant => isKnown(time.atOffset(ZoneOffset.UTC).toLocalDate)
    case time: java.sql.Timestamp => isKnown(time.toInstant)
    case several: Array[_] => several.forall(isKnown)
    case _ => true
  }

  /** None where Spark's table does not hold its source as expected. */
  def of(table: PythonTable): Option[ExchangeTable] =
    classOf[PythonTable].getDeclaredFields.find(_.getType == classOf[PythonDataSourceV2]).map { field =>
      field.setAccessible(true)
      new ExchangeTable(table, field.get(table).asInstanceOf[PythonDataSourceV2])
    }
}

private class ExchangeScanBuilder(source: PythonDataSourceV2, all: StructType, options: CaseInsensitiveStringMap)
    extends ScanBuilder with SupportsPushDownFilters with SupportsPushDownRequiredColumns
    with SupportsPushDownAggregates {

  private var filters = Array.empty[Filter]
  private var columns = all
  private var answer: Option[Scan] = None

  /** Spark applies all filters again: ours only prune. */
  override def pushFilters(pushed: Array[Filter]): Array[Filter] = {
    filters = pushed.filter(mayPrune)
    pushed
  }

  /** Python is asked only where it can leave something out: joins alone make a filter on every key. */
  private def mayPrune(filter: Filter): Boolean = filter match {
    case _: EqualTo | _: EqualNullSafe | _: In | _: IsNull | _: LessThan | _: LessThanOrEqual | _: GreaterThan |
        _: GreaterThanOrEqual => ExchangeTable.isKnownToPython(filter)
    case _ => false
  }

  override def pushedFilters(): Array[Filter] = Array.empty

  override def pruneColumns(required: StructType): Unit = {
    val named = all.filter(field => required.fieldNames.contains(field.name))
    // A batch without columns cannot tell its number of rows.
    columns = StructType(if (named.isEmpty) Seq(all.minBy(_.dataType.defaultSize)) else named)
  }

  /** Spark pushes aggregates only where no filter is left, and all of ours are. */
  override def supportCompletePushDown(aggregation: Aggregation): Boolean = {
    answer = if (Settings.plansLayouts()) KnownAnswer.of(aggregation, all, scan(all)) else None
    answer.isDefined
  }

  override def pushAggregation(aggregation: Aggregation): Boolean = answer.isDefined

  override def build(): Scan = answer.getOrElse(scan(columns))

  private def scan(columns: StructType): ExchangeScan = {
    val share = columns.defaultSize.toDouble / all.defaultSize.max(1)
    ExchangeScan(columns, filters.toSet, options)(source, share)
  }
}
