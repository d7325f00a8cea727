package io.ffq.spark

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.physical._
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types._

/**
 * The partitioning of the rows of an exchange, or of rows shuffled to meet them: Spark's hash of
 * the keys.
 *
 * It differs in two points from the partitioning of a shuffle, which exists only in its query:
 *  - In a join by the keys and more columns Spark discards shuffles by the keys alone, and shuffles
 *    both sides by all columns. An exchange is worth keeping.
 *  - Where a join widens an integer key, both sides meet by the hash of the narrow type.
 */
private class ExchangePartitioning(keys: Seq[Expression], partitions: Int)
    extends HashPartitioning(keys, partitions) {

  import ExchangePartitioning._

  override def nodeName: String = "HashPartitioning"

  override def satisfies0(required: Distribution): Boolean =
    super.satisfies0(required) || (required match {
      case ClusteredDistribution(clustering, requiresAll, _, _) =>
        !requiresAll && expressions.forall(key => clustering.exists(decides(_, key)))
      case _ => false
    })

  override def createShuffleSpec(distribution: ClusteredDistribution): ShuffleSpec =
    if (super.satisfies0(distribution)) new ExchangeShuffleSpec(this, distribution)
    else NarrowShuffleSpec(this, distribution)

  override protected def withNewChildrenInternal(
      children: IndexedSeq[Expression]): ExchangePartitioning =
    new ExchangePartitioning(children, numPartitions)
}

private object ExchangePartitioning {

  /**
   * Whether rows that agree in a column of a join, group or window agree in a hashed key: the
   * column is the key, or widens it, or the key is computed from the column.
   */
  def decides(column: Expression, key: Expression): Boolean =
    column.semanticEquals(key) ||
      isCast(column, key) && column.dataType.defaultSize > key.dataType.defaultSize ||
      isCast(key, column)

  private def isCast(result: Expression, input: Expression): Boolean = result match {
    case cast: Cast =>
      isInteger(cast.dataType) && isInteger(input.dataType) && cast.child.semanticEquals(input)
    case _ => false
  }

  private def isInteger(dataType: DataType): Boolean = dataType match {
    case ByteType | ShortType | IntegerType | LongType => true
    case _ => false
  }

  /** Whether the user has set Spark's rule against shuffles by a part of the columns. */
  def mustUseAllColumns: Boolean = {
    val rule = SQLConf.REQUIRE_ALL_CLUSTER_KEYS_FOR_CO_PARTITION
    SQLConf.get.contains(rule.key) && SQLConf.get.getConf(rule)
  }
}

private class ExchangeShuffleSpec(
    partitioning: ExchangePartitioning, distribution: ClusteredDistribution)
    extends HashShuffleSpec(partitioning, distribution) {

  override def canCreatePartitioning: Boolean =
    super.canCreatePartitioning || !ExchangePartitioning.mustUseAllColumns
}

/**
 * Lets the sides of a join by wide integers meet by the hash of a narrow type.
 *
 * Narrowing keeps the low bits of a value. A value that fits is unchanged, and lies where the
 * exchange has its rows. Any other matches no row of the exchange, and is in one partition only.
 * Spark's own hashes of the wide type differ, so they are never compatible.
 */
private case class NarrowShuffleSpec(
    partitioning: ExchangePartitioning, distribution: ClusteredDistribution) extends ShuffleSpec {

  /** For each hashed key the positions of the columns that decide it. */
  private lazy val positions: Seq[Set[Int]] = partitioning.expressions.map { key =>
    distribution.clustering.indices
      .filter(i => ExchangePartitioning.decides(distribution.clustering(i), key)).toSet
  }

  private def types: Seq[DataType] = partitioning.expressions.map(_.dataType)

  override def numPartitions: Int = partitioning.numPartitions

  override def isCompatibleWith(other: ShuffleSpec): Boolean = other match {
    case SinglePartitionShuffleSpec => numPartitions == 1
    case narrow: NarrowShuffleSpec =>
      numPartitions == narrow.numPartitions && types == narrow.types &&
      distribution.clustering.length == narrow.distribution.clustering.length &&
      positions.zip(narrow.positions).forall { case (own, others) => own.exists(others) }
    case ShuffleSpecCollection(several) => several.exists(isCompatibleWith)
    case _ => false
  }

  override def canCreatePartitioning: Boolean =
    positions.length == distribution.clustering.length || !ExchangePartitioning.mustUseAllColumns

  override def createPartitioning(clustering: Seq[Expression]): Partitioning =
    new ExchangePartitioning(
      positions.zip(types).map { case (of, narrow) =>
        val column = clustering(of.min)
        if (column.dataType == narrow) column else Cast(column, narrow, evalMode = EvalMode.LEGACY)
      },
      numPartitions)
}
