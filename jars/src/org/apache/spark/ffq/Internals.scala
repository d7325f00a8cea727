package org.apache.spark.ffq

import org.apache.spark.SparkContext
import org.apache.spark.scheduler.{SparkListenerInterface, StageInfo}
import org.apache.spark.sql.types.DataType

/** Access to members that Spark restricts to its own packages. */
object Internals {

  /** Whether a stage writes a shuffle; other stages compute a job's result or write output. */
  def feedsShuffle(stage: StageInfo): Boolean = stage.shuffleDepId.nonEmpty

  /** Add a listener to an existing queue: a new queue costs a thread and a copy of all events. */
  def listen(context: SparkContext, listener: SparkListenerInterface): Unit =
    context.listenerBus.addToStatusQueue(listener)

  /** The type with nulls allowed at every level of nesting. */
  def nullable[T <: DataType](dataType: T): T = dataType.asNullable.asInstanceOf[T]
}
