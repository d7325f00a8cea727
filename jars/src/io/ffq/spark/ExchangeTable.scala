package io.ffq.spark

import io.ffq.spark.Shared.Source
import org.apache.spark.ffq.Internals
import org.apache.spark.sql.catalyst.expressions.{AttributeReference, Expression}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2
import org.apache.spark.sql.connector.catalog.{SupportsRead, Table, TableCapability}
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation
import org.apache.spark.sql.connector.expressions.filter.Predicate
import org.apache.spark.sql.connector.read._
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.execution.datasources.v2.python.{PythonDataSourceV2, PythonTable}
import org.apache.spark.sql.internal.connector.SupportsPushDownCatalystFilters
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * Replaces the table of each read of an exchange with an [[ExchangeTable]], at the newest snapshot.
 *
 * Spark trusts a user's schema that says NOT NULL and does not ask the source before the first
 * scan. Any column of an exchange may hold nulls, as columns of files may, so all become nullable.
 */
private object OwnPlans extends Rule[LogicalPlan] {

  override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperators {
    case relation @ DataSourceV2Relation(Exchange(source, schema), output, _, _, options, _) =>
      // Asking Python for its schema makes it remember the newest step.
      source.getOrCreateDataSourceInPython(Source.Format, options, None)
      val table = new ExchangeTable(relation.table, source, schema)
      relation.copy(table = table, output = output.map(nullable))
    case stream: StreamingRelationV2 => stream.table match {
      case Exchange(source, schema) if stream.output.map(nullable) != stream.output =>
        val loose = new PythonTable(source, Source.Format, schema)
        stream.copy(table = loose, output = stream.output.map(nullable))
      case _ => stream
    }
  }

  private def nullable(column: AttributeReference): AttributeReference = {
    val dataType = Internals.nullable(column.dataType)
    column.copy(dataType = dataType, nullable = true)(column.exprId, column.qualifier)
  }

  /** Matches a table of Spark's that is an exchange; gives its source and nullable schema. */
  private object Exchange {

    private val field =
      classOf[PythonTable].getDeclaredFields.find(_.getType == classOf[PythonDataSourceV2])
    field.foreach(_.setAccessible(true))

    /** None if Spark's table has no field that holds its source. */
    def unapply(table: Table): Option[(PythonDataSourceV2, StructType)] = table match {
      case python: PythonTable if Settings.isFormat(python.name()) =>
        field.map { field =>
          val source = field.get(python).asInstanceOf[PythonDataSourceV2]
          (source, Internals.nullable(python.schema()))
        }
      case _ => None
    }
  }
}

/**
 * An exchange as a table that plans each scan separately.
 *
 * Spark keeps one plan for a Python source and gives it to all scans of a DataFrame, pruned by the
 * filters of the first. Here each scan has its own plan, so that filters may prune, and reads only
 * the columns it needs. The scans of a DataFrame share one Python source, which remembers the
 * snapshot.
 */
private class ExchangeTable(
    table: Table, source: PythonDataSourceV2, override val schema: StructType)
    extends Table with SupportsRead {

  override def name(): String = table.name()

  override def capabilities(): java.util.Set[TableCapability] = table.capabilities()

  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder =
    new ExchangeScanBuilder(source, schema, options)
}

private class ExchangeScanBuilder(
    source: PythonDataSourceV2, all: StructType, options: CaseInsensitiveStringMap)
    extends ScanBuilder with SupportsPushDownCatalystFilters with SupportsPushDownRequiredColumns
    with SupportsPushDownAggregates {

  private var filters = Set.empty[Condition]
  private var columns = all
  private var answer: Option[Scan] = None

  /** Keep the filters for pruning, and return them all: Spark must apply them again. */
  override def pushFilters(pushed: Seq[Expression]): Seq[Expression] = {
    filters = pushed.flatMap(Condition.of).toSet
    pushed
  }

  override def pushedFilters: Array[Predicate] = Array.empty

  override def pruneColumns(required: StructType): Unit = {
    val named = all.filter(field => required.fieldNames.contains(field.name))
    // A batch without columns does not know its number of rows.
    columns = StructType(if (named.isEmpty) Seq(all.minBy(_.dataType.defaultSize)) else named)
  }

  /** Spark calls this only if no filter is left to apply, so the whole scan is aggregated. */
  override def supportCompletePushDown(aggregation: Aggregation): Boolean = {
    answer =
      if (Settings.isPlannerEnabled()) KnownAnswer.of(aggregation, all, scan(all)) else None
    answer.isDefined
  }

  override def pushAggregation(aggregation: Aggregation): Boolean = answer.isDefined

  override def build(): Scan = answer.getOrElse(scan(columns))

  private def scan(columns: StructType): ExchangeScan = {
    val share = columns.defaultSize.toDouble / all.defaultSize.max(1)
    ExchangeScan(columns, filters, options)(source, share)
  }
}
