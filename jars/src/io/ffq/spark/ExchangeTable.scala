package io.ffq.spark

import org.apache.spark.ffq.Internals
import org.apache.spark.sql.catalyst.expressions.{AttributeReference, Expression}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2
import org.apache.spark.sql.connector.catalog.{SupportsRead, Table, TableCapability}
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation
import org.apache.spark.sql.connector.expressions.filter.Predicate
import org.apache.spark.sql.connector.read.{Scan, ScanBuilder, SupportsPushDownAggregates, SupportsPushDownRequiredColumns}
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.execution.datasources.v2.python.{PythonDataSourceV2, PythonTable}
import org.apache.spark.sql.internal.connector.SupportsPushDownCatalystFilters
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * Reads of an exchange go through [[ExchangeTable]], of the snapshot that is newest now.
 *
 * Spark believes a user's schema where it says NOT NULL, and asks the source for nothing before the first scan.
 * Any column of an exchange may hold nulls, as those of files may, so each is nullable for Spark.
 */
private object OwnPlans extends Rule[LogicalPlan] {

  override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperators {
    case relation @ DataSourceV2Relation(Exchange(source, schema), output, _, _, options, _) =>
      // Python notes the newest step when it is asked for its own schema.
      source.getOrCreateDataSourceInPython(Settings.Format, options, None)
      relation.copy(table = new ExchangeTable(relation.table, source, schema), output = output.map(relaxed))
    case stream: StreamingRelationV2 => stream.table match {
      case Exchange(source, schema) if stream.output.map(relaxed) != stream.output =>
        val loose = new PythonTable(source, Settings.Format, schema)
        stream.copy(table = loose, output = stream.output.map(relaxed))
      case _ => stream
    }
  }

  private def relaxed(column: AttributeReference): AttributeReference =
    column.copy(dataType = Internals.relaxed(column.dataType), nullable = true)(column.exprId, column.qualifier)

  /** A table of Spark's that is an exchange: its source, and its schema with nulls allowed. */
  private object Exchange {

    private val field = classOf[PythonTable].getDeclaredFields.find(_.getType == classOf[PythonDataSourceV2])
    field.foreach(_.setAccessible(true))

    /** None where Spark's table does not hold its source as expected. */
    def unapply(table: Table): Option[(PythonDataSourceV2, StructType)] = table match {
      case python: PythonTable if python.name() == Settings.Format =>
        field.map(f => (f.get(python).asInstanceOf[PythonDataSourceV2], Internals.relaxed(python.schema())))
      case _ => None
    }
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
private class ExchangeTable(table: Table, source: PythonDataSourceV2, override val schema: StructType)
    extends Table with SupportsRead {

  override def name(): String = table.name()

  override def capabilities(): java.util.Set[TableCapability] = table.capabilities()

  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder =
    new ExchangeScanBuilder(source, schema, options)
}

private class ExchangeScanBuilder(source: PythonDataSourceV2, all: StructType, options: CaseInsensitiveStringMap)
    extends ScanBuilder with SupportsPushDownCatalystFilters with SupportsPushDownRequiredColumns
    with SupportsPushDownAggregates {

  private var filters = Set.empty[Condition]
  private var columns = all
  private var answer: Option[Scan] = None

  /** Spark applies all filters again: ours only prune. */
  override def pushFilters(pushed: Seq[Expression]): Seq[Expression] = {
    filters = pushed.flatMap(Condition.of).toSet
    pushed
  }

  override def pushedFilters: Array[Predicate] = Array.empty

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
    ExchangeScan(columns, filters, options)(source, share)
  }
}
