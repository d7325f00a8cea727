package io.ffq.spark

import java.util.{Collections, IdentityHashMap}

import scala.annotation.nowarn
import scala.util.Try

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.expressions.{Alias, And, Ascending, Attribute, Expression, IsNotNull, NamedExpression, NullsFirst, SortOrder}
import org.apache.spark.sql.catalyst.planning.PhysicalOperation
import org.apache.spark.sql.catalyst.plans.logical.{Filter, Join, LeafNode, LogicalPlan, Project, ReturnAnswer, Union}
import org.apache.spark.sql.catalyst.plans.physical._
import org.apache.spark.sql.execution.{CombineAdjacentAggregation, FilterExec, ProjectExec, ReplaceHashWithSortAgg, SortExec, SparkPlan, SparkStrategy}
import org.apache.spark.sql.execution.adaptive.QueryStageExec
import org.apache.spark.sql.execution.datasources.v2.{BatchScanExec, DataSourceV2ScanRelation, DataSourceV2Strategy, WriteToDataSourceV2}
import org.apache.spark.sql.execution.exchange.{EnsureRequirements, Exchange, REPARTITION_BY_COL, REPARTITION_BY_NUM, ShuffleExchangeExec}
import org.apache.spark.sql.execution.joins.ShuffledJoin

/**
 * Plans scans of exchanges, and decides for each whether its tasks are partitions.
 *
 * The decision needs the whole physical plan before Spark adds exchanges to it. Spark asks a strategy
 * for the whole answer first; this one lets the planner make the plan and then looks at it. So it
 * works with and without adaptive execution, for its later plans and for subqueries.
 */
private class ScanStrategy(session: SparkSession) extends SparkStrategy {

  private lazy val classic = session.asInstanceOf[org.apache.spark.sql.classic.SparkSession]

  private lazy val v2 = new DataSourceV2Strategy(classic)

  override def apply(plan: LogicalPlan): Seq[SparkPlan] = plan match {
    case answer: ReturnAnswer if !ScanStrategy.under.get() && isWanted(answer) && !ScanStrategy.mayKeepState(answer) =>
      ScanStrategy.under.set(true)
      val made = try classic.sessionState.planner.plan(answer).next() finally ScanStrategy.under.remove()
      Seq(Layouts.decided(made))
    case PhysicalOperation(_, _, relation: DataSourceV2ScanRelation) if relation.scan.isInstanceOf[ExchangeScan] =>
      v2(plan).map(_.transformUp {
        case BatchScanExec(output, scan: ExchangeScan, filters, _, _, _) =>
          FfqScanExec(output, scan, filters, Layout())
      })
    case _ => Nil
  }

  private def isWanted(plan: LogicalPlan): Boolean =
    Settings.plansLayouts() && plan.collectLeaves().exists {
      case relation: DataSourceV2ScanRelation => relation.scan.isInstanceOf[ExchangeScan]
      case _ => false
    }
}

private object ScanStrategy {

  /** Whether this thread makes a plan that is to be looked at. Spark makes a strategy for each plan. */
  private val under = ThreadLocal.withInitial[Boolean](() => false)

  /** Streams with state are planned by strategies of their own, which cannot be asked from here. */
  @nowarn("msg=WriteToDataSourceV2")
  private def mayKeepState(plan: LogicalPlan): Boolean = plan.exists {
    case Join(left, right, _, _, _) => left.isStreaming && right.isStreaming
    case _: ReturnAnswer | _: Project | _: Filter | _: Union | _: WriteToDataSourceV2 | _: LeafNode => false
    case other => other.isStreaming
  }
}

private object Layouts {

  /** The plan with each scan in the form that spares an exchange or a sort; else in few large tasks. */
  def decided(plan: SparkPlan): SparkPlan =
    if (!plan.exists(wantsClusters)) plan
    else {
      val candidate = coalesced(plan.transformUp {
        case scan: FfqScanExec if scan.keys.nonEmpty =>
          linked(scan, Layout(scan.scan.note.get.partitions, scan.storedOrder))
      })
      val uses = new Uses
      // Spark's own rules tell what they would make of it.
      uses.find(ReplaceHashWithSortAgg(CombineAdjacentAggregation(EnsureRequirements().apply(candidate))))
      candidate.foreach {
        case ShuffleExchangeExec(wanted: HashPartitioning, child, REPARTITION_BY_COL | REPARTITION_BY_NUM, _, _)
            if partitionings(child).exists(wanted.semanticEquals) => uses.find(child, isNeeded = true)
        case _ =>
      }
      candidate.transformUp {
        case scan: FfqScanExec if scan.layout.partitions > 0 =>
          if (!uses.needed.contains(scan)) linked(scan, Layout())
          else if (uses.ordered.contains(scan)) scan
          else linked(scan, scan.layout.copy(order = uses.sorted.getOrDefault(scan, Nil)))
      }
    }

  private def wantsClusters(plan: SparkPlan): Boolean = plan.requiredChildDistribution.exists {
    case _: ClusteredDistribution | AllTuples => true
    case _ => false
  }

  private def linked(scan: FfqScanExec, layout: Layout): FfqScanExec = {
    val other = scan.copy(layout = layout)
    scan.logicalLink.foreach(other.setLogicalLink)
    other
  }

  /** Joins of P and P' partitions, where one is a multiple of the other, read the finer side as the coarser. */
  private def coalesced(plan: SparkPlan): SparkPlan = plan.transformUp {
    case join: ShuffledJoin =>
      (counts(join.left, join.leftKeys), counts(join.right, join.rightKeys)) match {
        case (Some(left), Some(right)) if left > right && left % right == 0 =>
          join.withNewChildren(Seq(read(join.left, left, right), join.right))
        case (Some(left), Some(right)) if right > left && right % left == 0 =>
          join.withNewChildren(Seq(join.left, read(join.right, right, left)))
        case _ => join
      }
  }

  /** Into how many partitions the keys of a join spread rows that come from scans alone. */
  private def counts(side: SparkPlan, keys: Seq[Expression]): Option[Int] =
    if (side.exists(node => node.isInstanceOf[Exchange] || node.isInstanceOf[QueryStageExec])) None
    else partitionings(side).find { hash =>
      hash.expressions.length == keys.length && hash.expressions.forall(e => keys.exists(_.semanticEquals(e)))
    }.map(_.numPartitions)

  private def read(side: SparkPlan, from: Int, to: Int): SparkPlan = side.transformUp {
    case scan: FfqScanExec if scan.layout.partitions == from => linked(scan, scan.layout.copy(partitions = to))
  }

  /** A join whose sides differ in number has no partitioning before Spark has added an exchange to it, and says so. */
  private def partitionings(plan: SparkPlan): Seq[HashPartitioning] =
    Try(plan.outputPartitioning).fold(_ => Nil, hashes)

  private def hashes(partitioning: Partitioning): Seq[HashPartitioning] = partitioning match {
    case hash: HashPartitioning => Seq(hash)
    case PartitioningCollection(several) => several.flatMap(hashes)
    case _ => Nil
  }

  /** Which scans an operator above relies on, with no exchange between, and the order that it wants of them. */
  private class Uses {

    val needed: java.util.Set[FfqScanExec] = Collections.newSetFromMap(new IdentityHashMap)
    val ordered: java.util.Set[FfqScanExec] = Collections.newSetFromMap(new IdentityHashMap)

    /** Scans that nothing but a sort of Spark's stands above: they sort columns for less than it sorts rows. */
    val sorted: java.util.Map[FfqScanExec, Seq[String]] = new IdentityHashMap

    def find(plan: SparkPlan, isNeeded: Boolean = false, isOrdered: Boolean = false): Unit = plan match {
      case scan: FfqScanExec =>
        if (isNeeded) needed.add(scan)
        if (isNeeded && isOrdered) ordered.add(scan)
      case exchange: Exchange => exchange.children.foreach(find(_))
      case sort: SortExec =>
        val isThere = SortOrder.orderingSatisfies(sort.child.outputOrdering, sort.sortOrder)
        if (isNeeded && !isThere) sortable(sort.child, sort.sortOrder.map(ascending)).foreach {
          case (scan, columns) => sorted.put(scan, columns)
        }
        find(sort.child, isNeeded, isThere)
      case _ =>
        plan.children.lazyZip(plan.requiredChildDistribution).lazyZip(plan.requiredChildOrdering).foreach {
          case (child, UnspecifiedDistribution, order) => find(child, isNeeded, isOrdered || order.nonEmpty)
          case (child, _, order) => find(child, isNeeded = true, isOrdered || order.nonEmpty)
        }
    }
  }

  private def ascending(order: SortOrder): Option[Attribute] = order match {
    case SortOrder(column: Attribute, Ascending, NullsFirst, _) if FfqScanExec.isOrdered(column.dataType) =>
      Some(column)
    case _ => None
  }

  /** The scan below and its columns by these names, unless a filter between may leave few rows to sort. */
  private def sortable(plan: SparkPlan, columns: Seq[Option[Attribute]]): Option[(FfqScanExec, Seq[String])] =
    plan match {
      case _ if columns.exists(_.isEmpty) => None
      case scan: FfqScanExec => Some(scan -> columns.flatten.flatMap(scan.nameOf))
      case FilterExec(condition, child) if leavesOutNulls(condition) => sortable(child, columns)
      case ProjectExec(list, child) => sortable(child, columns.map(_.flatMap(source(list, _))))
      case _ => None
    }

  private def leavesOutNulls(condition: Expression): Boolean = condition match {
    case And(left, right) => leavesOutNulls(left) && leavesOutNulls(right)
    case other => other.isInstanceOf[IsNotNull]
  }

  /** The column that a projection passes on as another. */
  private def source(list: Seq[NamedExpression], column: Attribute): Option[Attribute] =
    list.find(_.exprId == column.exprId).collect {
      case Alias(of: Attribute, _) => of
      case same: Attribute => same
    }
}
