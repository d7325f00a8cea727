package io.ffq.spark

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate.{AggregateExpression, Complete, Count}
import org.apache.spark.sql.catalyst.planning.PhysicalOperation
import org.apache.spark.sql.catalyst.plans.logical.{Aggregate, LogicalPlan}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation

/**
 * Rewrites counts of literals over an exchange, before Spark asks its scan for the aggregates.
 *
 * Spark translates the count of any literal to COUNT(*). That is wrong for DISTINCT, which counts
 * one value, and for null, which counts none.
 */
private object LiteralCounts extends Rule[LogicalPlan] with AliasHelper {

  override def apply(plan: LogicalPlan): LogicalPlan = plan.transform {
    case aggregate @ Aggregate(_, _, PhysicalOperation(columns, _, exchange), _)
        if isExchange(exchange) =>
      val aliases = getAliasMap(columns)
      aggregate.transformExpressions {
        case count @ AggregateExpression(Count(Seq(counted)), Complete, isDistinct, None, _) =>
          replaceAlias(counted, aliases) match {
            case Literal(null, _) => Literal(0L)
            case _: Literal if isDistinct => If(hasRows, Literal(1L), Literal(0L))
            case _ => count
          }
      }
  }

  private def isExchange(plan: LogicalPlan): Boolean = plan match {
    case relation: DataSourceV2Relation => relation.table.isInstanceOf[ExchangeTable]
    case _ => false
  }

  private def hasRows: Expression =
    GreaterThan(Count(Literal(1)).toAggregateExpression(), Literal(0L))
}
