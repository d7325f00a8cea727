package io.ffq.spark

import scala.util.Try

import org.apache.spark.sql.catalyst.plans.physical._
import org.apache.spark.sql.execution._
import org.apache.spark.sql.execution.adaptive.QueryStageExec
import org.apache.spark.sql.execution.exchange._

/**
 * Gives the inputs of joins, cogroups and unions equal numbers of partitions.
 *
 * A row of an exchange lies in partition pmod(hash, P). An exchange can therefore be read in any
 * number of partitions that divides P, and two exchanges in any common divisor.
 */
private object CommonCounts {

  /**
   * Spark accepts the same ratio for the buckets of tables:
   * `spark.sql.bucketing.coalesceBucketsInJoin.maxBucketRatio`.
   */
  private val MaxRatio = 4

  /** Read scans in fewer partitions where that reduces the number of shuffles. */
  def applyTo(plan: SparkPlan): SparkPlan = {
    val all = withCommonCounts(plan, unions = true)
    if (all.fastEquals(plan)) plan
    else Seq(plan, withCommonCounts(plan, unions = false), all).minBy(shuffles)
  }

  private def shuffles(plan: SparkPlan): Int =
    EnsureRequirements().apply(plan).collect { case shuffle: ShuffleExchangeExec => shuffle }.size

  private def withCommonCounts(plan: SparkPlan, unions: Boolean): SparkPlan = plan.transformUp {
    case union: UnionExec if unions && isUnionOfLikeHashes(union) => withCommonCount(union)
    case operator if isJoinOfLikeHashes(operator) => withCommonCount(operator)
  }

  /** Whether all inputs would be co-partitioned if they had equal numbers of partitions. */
  private def isJoinOfLikeHashes(operator: SparkPlan): Boolean =
    (operator.children, operator.requiredChildDistribution) match {
      case (Seq(left, right), Seq(byLeft: ClusteredDistribution, byRight: ClusteredDistribution)) =>
        val rightSpecs = specs(right, byRight)
        specs(left, byLeft).exists(spec => rightSpecs.exists(spec.isCompatibleWith))
      case _ => false
    }

  /** Spark's descriptions of an input's partitionings, as if it had one partition. */
  private def specs(input: SparkPlan, required: ClusteredDistribution): Seq[ShuffleSpec] =
    partitionings(input).filter(_.satisfies(required)).map { hash =>
      hash.copy(numPartitions = 1).createShuffleSpec(required)
    }

  /** Whether the same columns of the union are hashed in all of its inputs. */
  private def isUnionOfLikeHashes(union: UnionExec): Boolean =
    union.children.map { input =>
      partitionings(input)
        .map(_.expressions.map(hashed => input.output.indexWhere(_.semanticEquals(hashed))))
        .filterNot(_.contains(-1))
        .toSet
    }.reduce(_ & _).nonEmpty

  private def withCommonCount(operator: SparkPlan): SparkPlan = {
    val inputs = operator.children
    val counts = inputs.map(partitionings(_).head.numPartitions)
    val fixed = inputs.zip(counts).collect { case (input, count) if isFixed(input, count) => count }
    val common = counts.reduce(gcd(_, _))
    val isPossible = fixed.forall(_ == common) && counts.exists(_ != common)
    if (!isPossible || !isWorthwhile(common, inputs, counts)) operator
    else operator.withNewChildren(inputs.zip(counts).map {
      case (input, count) => if (count == common) input else coalesced(input, count, common)
    })
  }

  /** Whether an input is shuffled, cached or bucketed, and not only read from exchanges. */
  private def isFixed(input: SparkPlan, count: Int): Boolean =
    scans(input, count).isEmpty || input.exists {
      case _: Exchange | _: QueryStageExec => true
      case _ => false
    }

  private def scans(input: SparkPlan, count: Int): Seq[FfqScanExec] = input.collect {
    case scan: FfqScanExec if scan.partitioning.partitions == count => scan
  }

  /** Whether few enough tasks are lost: none, or a part of those of the smallest exchange. */
  private def isWorthwhile(common: Int, inputs: Seq[SparkPlan], counts: Seq[Int]): Boolean =
    common == counts.min || common > 1 && {
      val written = inputs.zip(counts).flatMap { case (input, count) =>
        scans(input, count).map(_.scan.note.get.partitions)
      }
      common.toLong * MaxRatio >= written.min
    }

  private def coalesced(input: SparkPlan, from: Int, to: Int): SparkPlan = input.transformUp {
    case scan: FfqScanExec if scan.partitioning.partitions == from =>
      scan.withPartitioning(scan.partitioning.copy(partitions = to))
  }

  /**
   * The hash partitionings of a plan, all of one number of partitions. Joins of inputs with
   * different numbers throw until Spark has added a shuffle to them.
   */
  def partitionings(plan: SparkPlan): Seq[HashPartitioning] =
    Try(plan.outputPartitioning).fold(
      _ => Nil,
      PartitioningCollection.flatten(_).collect { case hash: HashPartitioning => hash })

  @annotation.tailrec
  private def gcd(a: Int, b: Int): Int = if (b == 0) a else gcd(b, a % b)
}
