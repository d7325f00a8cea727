package io.ffq.spark

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import org.apache.spark.sql.execution.QueryExecution
import org.apache.spark.sql.execution.ffq.Internals

/**
 * The writes of exchanges, by SQL execution: from their first job until the steward has confirmed
 * that they have an outcome. A write whose execution has ended can no longer commit, unless a
 * commit that was left behind comes first.
 */
private object Writes {

  private class Entry(val write: Write) { @volatile var endedAt: Option[Long] = None }

  /** None for executions that write no exchange. */
  private val known = Recent.map[Long, Option[Entry]]()
  private val unsettled = Recent.map[Long, Entry]()
  private val roots = Recent.map[String, Write]()
  private var lastLook = Set.empty[Long]

  /** Forget the writes of an earlier application in this JVM. */
  def clear(): Unit = Seq(known, unsettled, roots).foreach(_.clear())

  def isEmpty: Boolean = unsettled.isEmpty

  /** The write that an execution makes; one that is seen for the first time is told to the steward. */
  def of(execution: Long): Option[Write] = entry(execution, Internals.running().get(execution)).map(_.write)

  private def entry(execution: Long, query: => Option[QueryExecution]): Option[Entry] = synchronized {
    val found = known.get(execution)
    if (found != null) found
    else query.flatMap { running =>
      val entry = add(execution, running)
      entry.foreach { opened =>
        Cancels.opened(opened.write.query, execution)
        Steward.sendState(opening(opened.write))
      }
      entry
    }
  }

  private def add(execution: Long, query: QueryExecution): Option[Entry] = {
    val entry = written(query).map(new Entry(_))
    known.put(execution, entry)
    entry.foreach { added =>
      unsettled.put(execution, added)
      roots.put(added.write.root, added.write)
    }
    entry
  }

  /** A plan that cannot be analyzed writes nothing. */
  private def written(query: QueryExecution): Option[Write] =
    try Write.in(query.analyzed) catch { case NonFatal(_) => None }

  /** Spark has told that an execution ended. One that never had a job gets no lease: it may have been refused. */
  def ended(execution: Long, query: Option[QueryExecution], time: Long): Unit = synchronized {
    val found = known.get(execution)
    val entry = if (found != null) found else query.flatMap(add(execution, _))
    if (found == null) entry.foreach(ended => Steward.sendState(rooting(ended.write)))
    entry.foreach(end(_, time))
  }

  private def end(entry: Entry, time: Long): Unit = synchronized {
    if (entry.endedAt.isEmpty) {
      entry.endedAt = Some(time)
      Steward.sendState(ending(entry.write, time))
    }
  }

  /**
   * Find what began or ended, by Spark's own account: a listener may miss events. What runs for the first time
   * may still be refused before it writes anything, so only what ran at the last look counts as begun.
   */
  def look(): Unit = {
    val open = unsettled.synchronized(unsettled.asScala.toSeq)
    val now = System.currentTimeMillis()
    val running = Internals.running()
    running.foreach { case (execution, query) => if (lastLook(execution)) entry(execution, Some(query)) }
    lastLook = running.keySet.toSet
    open.foreach { case (execution, entry) => if (!running.contains(execution)) end(entry, now) }
  }

  /** The steward has found or made the outcome of a query that was given up. */
  def settled(query: Long): Unit = synchronized {
    unsettled.values().removeIf(entry => entry.write.query == query && entry.endedAt.nonEmpty)
  }

  /** Give all that a new steward has to know, while nothing changes. */
  def handOver(take: Seq[Seq[(String, Any)]] => Unit): Unit = synchronized(take(state))

  private def state: Seq[Seq[(String, Any)]] =
    roots.values().asScala.toSeq.map(rooting) ++ unsettled.values().asScala.toSeq.map { entry =>
      entry.endedAt.fold(opening(entry.write))(ending(entry.write, _))
    }

  /** Secrets go through the pipe alone. */
  private def rooting(write: Write): Seq[(String, Any)] =
    Seq("event" -> "root", "root" -> write.root, "storage" -> write.storage)

  private def opening(write: Write): Seq[(String, Any)] =
    Seq("event" -> "open", "root" -> write.root, "query" -> write.query, "storage" -> write.storage)

  private def ending(write: Write, time: Long): Seq[(String, Any)] =
    Seq("event" -> "ended", "root" -> write.root, "query" -> write.query, "time" -> time)
}
