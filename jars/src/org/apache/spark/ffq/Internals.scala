package org.apache.spark.ffq

import org.apache.spark.scheduler.StageInfo

/** The little that Spark shows to its own packages alone. */
object Internals {

  /** Whether a stage feeds a shuffle; the others give a job its result, or write. */
  def feedsShuffle(stage: StageInfo): Boolean = stage.shuffleDepId.nonEmpty
}
