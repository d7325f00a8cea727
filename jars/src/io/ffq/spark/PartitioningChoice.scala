package io.ffq.spark

import java.util.{Collections, IdentityHashMap}

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.physical._
import org.apache.spark.sql.execution._
import org.apache.spark.sql.execution.exchange._

/** Chooses how each scan of a physical plan distributes its rows over tasks. */
private object PartitioningChoice {

  /** Partition or sort the scans where that saves a shuffle or a sort; leave the others plain. */
  def applyTo(plan: SparkPlan): SparkPlan =
    if (!plan.exists(requiresClustering)) plan
    else {
      val candidate = CommonCounts.applyTo(plan.transformUp {
        case scan: FfqScanExec if scan.keys.nonEmpty =>
          scan.withPartitioning(
            ScanPartitioning(scan.scan.note.get.partitions, scan.storedOrder))
      })
      val uses = usesIn(candidate)
      candidate.transformUp {
        case scan: FfqScanExec if scan.partitioning.partitions > 0 =>
          if (!uses.needed.contains(scan)) scan.withPartitioning(ScanPartitioning())
          else if (uses.ordered.contains(scan)) scan
          else scan.withPartitioning(
            scan.partitioning.copy(order = uses.sorted.getOrDefault(scan, Nil)))
      }
    }

  private def usesIn(candidate: SparkPlan): Uses = {
    val uses = new Uses
    // Spark's own rules show which shuffles and sorts it would add to this plan.
    val withShuffles = EnsureRequirements().apply(candidate)
    uses.collect(ReplaceHashWithSortAgg(CombineAdjacentAggregation(withShuffles)))
    candidate.foreach {
      // A repartition that asks for the partitioning which its input has already.
      case ShuffleExchangeExec(
            wanted: HashPartitioning, child, REPARTITION_BY_COL | REPARTITION_BY_NUM, _, _)
          if CommonCounts.partitionings(child).exists(wanted.semanticEquals) =>
        uses.collect(child, isNeeded = true)
      case _ =>
    }
    uses
  }

  private def requiresClustering(plan: SparkPlan): Boolean = plan.requiredChildDistribution.exists {
    case _: ClusteredDistribution | AllTuples => true
    case _ => false
  }

  /** The scans on which an operator relies without a shuffle between, by object identity. */
  private class Uses {

    /** Scans that must be partitioned. */
    val needed: java.util.Set[FfqScanExec] = Collections.newSetFromMap(new IdentityHashMap)

    /** Scans that must be partitioned and keep the stored order. */
    val ordered: java.util.Set[FfqScanExec] = Collections.newSetFromMap(new IdentityHashMap)

    /**
     * Partitioned scans directly below a sort, and its columns. The scan sorts them more cheaply:
     * it sorts columns, Spark sorts rows.
     */
    val sorted: java.util.Map[FfqScanExec, Seq[String]] = new IdentityHashMap

    def collect(plan: SparkPlan, isNeeded: Boolean = false, isOrdered: Boolean = false): Unit =
      plan match {
        case scan: FfqScanExec =>
          if (isNeeded) needed.add(scan)
          if (isNeeded && isOrdered) ordered.add(scan)
        case exchange: Exchange => exchange.children.foreach(collect(_))
        case sort: SortExec =>
          val isSorted = SortOrder.orderingSatisfies(sort.child.outputOrdering, sort.sortOrder)
          if (isNeeded && !isSorted) {
            sortableScan(sort.child, sort.sortOrder.map(ascendingColumn)).foreach {
              case (scan, columns) => sorted.put(scan, columns)
            }
          }
          collect(sort.child, isNeeded, isSorted)
        case _ =>
          plan.children
            .lazyZip(plan.requiredChildDistribution)
            .lazyZip(plan.requiredChildOrdering)
            .foreach {
              case (child, UnspecifiedDistribution, order) =>
                collect(child, isNeeded, isOrdered || order.nonEmpty)
              case (child, _, order) =>
                collect(child, isNeeded = true, isOrdered || order.nonEmpty)
            }
      }
  }

  private def ascendingColumn(order: SortOrder): Option[Attribute] = order match {
    case SortOrder(column: Attribute, Ascending, NullsFirst, _)
        if FfqScanExec.isOrdered(column.dataType) => Some(column)
    case _ => None
  }

  /** The scan below a sort and its names of the sorted columns; None below a selective filter. */
  private def sortableScan(
      plan: SparkPlan, columns: Seq[Option[Attribute]]): Option[(FfqScanExec, Seq[String])] =
    plan match {
      case _ if columns.exists(_.isEmpty) => None
      case scan: FfqScanExec => Some(scan -> columns.flatten.flatMap(scan.nameOf))
      case FilterExec(condition, child) if removesOnlyNulls(condition) =>
        sortableScan(child, columns)
      case ProjectExec(list, child) =>
        sortableScan(child, columns.map(_.flatMap(inputColumn(list, _))))
      case _ => None
    }

  private def removesOnlyNulls(condition: Expression): Boolean = condition match {
    case And(left, right) => removesOnlyNulls(left) && removesOnlyNulls(right)
    case other => other.isInstanceOf[IsNotNull]
  }

  /** The input column that a projection renames or passes on as this output column. */
  private def inputColumn(list: Seq[NamedExpression], column: Attribute): Option[Attribute] =
    list.find(_.exprId == column.exprId).collect {
      case Alias(of: Attribute, _) => of
      case same: Attribute => same
    }
}
