package io.ffq.spark

import org.apache.spark.sql.catalyst.expressions.Expression
import org.apache.spark.sql.catalyst.plans.physical._
import org.apache.spark.sql.internal.SQLConf

/**
 * The partitioning of the rows of an exchange: Spark's hash of its keys.
 *
 * In one point it differs from the partitioning of a shuffle, which exists only in its query. In a
 * join by the keys and more columns Spark discards shuffles by the keys alone, and shuffles both
 * sides by all columns. An exchange is worth keeping.
 */
private class ExchangePartitioning(keys: Seq[Expression], partitions: Int)
    extends HashPartitioning(keys, partitions) {

  override def createShuffleSpec(distribution: ClusteredDistribution): ShuffleSpec =
    new ExchangeShuffleSpec(this, distribution)

  override protected def withNewChildrenInternal(
      children: IndexedSeq[Expression]): ExchangePartitioning =
    new ExchangePartitioning(children, partitions)
}

private class ExchangeShuffleSpec(
    partitioning: ExchangePartitioning, distribution: ClusteredDistribution)
    extends HashShuffleSpec(partitioning, distribution) {

  /** Follow Spark's rule where the user has asked for it. */
  override def canCreatePartitioning: Boolean =
    super.canCreatePartitioning ||
      !SQLConf.get.contains(SQLConf.REQUIRE_ALL_CLUSTER_KEYS_FOR_CO_PARTITION.key)
}
