package io.ffq.spark

import scala.annotation.nowarn

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.planning.PhysicalOperation
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.execution.{SparkPlan, SparkStrategy}
import org.apache.spark.sql.execution.datasources.v2._

/**
 * Plans scans of exchanges and chooses the partitioning of each.
 *
 * The choice needs the whole physical plan before Spark adds shuffles to it. Spark asks a strategy
 * for the root of a query first: this strategy lets the planner plan the query and then revises the
 * result. It therefore works with and without adaptive execution, for re-optimized plans and for
 * subqueries.
 */
private class ScanStrategy(session: SparkSession) extends SparkStrategy {

  private lazy val classic = session.asInstanceOf[org.apache.spark.sql.classic.SparkSession]

  private lazy val v2 = new DataSourceV2Strategy(classic)

  override def apply(plan: LogicalPlan): Seq[SparkPlan] = plan match {
    case root: ReturnAnswer if isRevisable(root) => Seq(PartitioningChoice.applyTo(planned(root)))
    case PhysicalOperation(_, _, relation: DataSourceV2ScanRelation) if isExchange(relation) =>
      v2(plan).map(_.transformUp {
        case BatchScanExec(output, scan: ExchangeScan, filters, _, _, _) =>
          FfqScanExec(output, scan, filters, ScanPartitioning())
      })
    case _ => Nil
  }

  private def planned(root: ReturnAnswer): SparkPlan = {
    ScanStrategy.isPlanning.set(true)
    try classic.sessionState.planner.plan(root).next()
    finally ScanStrategy.isPlanning.remove()
  }

  private def isRevisable(root: ReturnAnswer): Boolean =
    !ScanStrategy.isPlanning.get() && root.collectLeaves().exists {
      case relation: DataSourceV2ScanRelation => isExchange(relation)
      case _ => false
    } && Settings.isPlannerEnabled() && !ScanStrategy.mayKeepState(root)

  private def isExchange(relation: DataSourceV2ScanRelation): Boolean =
    relation.scan.isInstanceOf[ExchangeScan]
}

private object ScanStrategy {

  /** Whether this thread is inside [[ScanStrategy.planned]]. Spark makes a strategy per plan. */
  private val isPlanning = ThreadLocal.withInitial[Boolean](() => false)

  /** Stateful streams are planned by strategies of Spark's that cannot be called from here. */
  @nowarn("msg=WriteToDataSourceV2")
  private def mayKeepState(plan: LogicalPlan): Boolean = plan.exists {
    case Join(left, right, _, _, _) => left.isStreaming && right.isStreaming
    case _: ReturnAnswer | _: Project | _: Filter | _: Union | _: WriteToDataSourceV2 |
        _: LeafNode => false
    case other => other.isStreaming
  }
}
