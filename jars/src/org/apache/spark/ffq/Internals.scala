package org.apache.spark.ffq

import org.apache.spark.SparkContext
import org.apache.spark.scheduler.{SparkListenerInterface, StageInfo}
import org.apache.spark.sql.types.DataType

/** The little that Spark shows to its own packages alone. */
object Internals {

  /** Whether a stage feeds a shuffle; the others give a job its result, or write. */
  def feedsShuffle(stage: StageInfo): Boolean = stage.shuffleDepId.nonEmpty

  /** Listen in a queue that Spark has anyway: one of our own would cost a thread and every event. */
  def listen(context: SparkContext, listener: SparkListenerInterface): Unit =
    context.listenerBus.addToStatusQueue(listener)

  /** The type with nulls allowed at every depth. */
  def relaxed[T <: DataType](kind: T): T = kind.asNullable.asInstanceOf[T]
}
