package io.ffq.spark

import org.apache.spark.SparkContext

/** Cancels the Spark jobs of a query: all running and future jobs of its SQL execution. */
private object Cancels {

  private val executions = Recent.map[Long, java.lang.Long]()
  private val running = Recent.map[Long, Set[Int]]()
  private val canceled = Recent.map[Long, String]()

  def opened(query: Long, execution: Long): Unit = executions.put(query, execution)

  def started(execution: Long, job: Int): Unit = {
    running.merge(execution, Set(job), (a, b) => a ++ b)
    Option(canceled.get(execution)).foreach(cancelJob(job, _))
  }

  def ended(execution: Long, job: Int): Unit =
    running.computeIfPresent(execution, (_, jobs) => jobs - job)

  def cancel(query: Long, message: String): Unit =
    Option(executions.get(query)).foreach { execution =>
      if (canceled.putIfAbsent(execution, message) == null) {
        Option(running.get(execution)).foreach(_.foreach(cancelJob(_, message)))
      }
    }

  private def cancelJob(job: Int, message: String): Unit =
    SparkContext.getOrCreate().cancelJob(job, message)
}
