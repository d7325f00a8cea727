package io.ffq.spark

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import io.ffq.spark.Shared.{StewardEvent => Event}
import org.apache.spark.sql.execution.QueryExecution
import org.apache.spark.sql.execution.ffq.Internals

/**
 * The writes of exchanges by SQL execution, from their first job until the steward confirms that
 * their query has an outcome. After its execution ends, a write can only commit if its commit was
 * already under way.
 */
private object Writes {

  private class Entry(val write: Write) { @volatile var endedAt: Option[Long] = None }

  /** The write of each execution, or None for an execution that writes no exchange. */
  private val known = Recent.map[Long, Option[Entry]]()
  private val unsettled = Recent.map[Long, Entry]()
  private val roots = Recent.map[String, Write]()
  private var runningAtLastLook = Set.empty[Long]

  /** Forget the writes of an earlier application in this JVM. */
  def clear(): Unit = Seq(known, unsettled, roots).foreach(_.clear())

  def isEmpty: Boolean = unsettled.isEmpty

  /** The write of an execution. The first call for a write announces it to the steward. */
  def of(execution: Long): Option[Write] =
    entry(execution, Internals.running().get(execution)).map(_.write)

  private def entry(execution: Long, query: => Option[QueryExecution]): Option[Entry] =
    synchronized {
      val previous = known.get(execution)
      if (previous != null) previous
      else query.flatMap { running =>
        val entry = add(execution, running)
        entry.foreach { opened =>
          Cancels.opened(opened.write.query, execution)
          Steward.sendState(openEvent(opened.write))
        }
        entry
      }
    }

  private def add(execution: Long, query: QueryExecution): Option[Entry] = {
    val entry = writeIn(query).map(new Entry(_))
    known.put(execution, entry)
    entry.foreach { added =>
      unsettled.put(execution, added)
      roots.put(added.write.root, added.write)
    }
    entry
  }

  /** The write in a query's plan; None if the plan cannot be analyzed. */
  private def writeIn(query: QueryExecution): Option[Write] =
    try Write.in(query.analyzed) catch { case NonFatal(_) => None }

  /**
   * Handle the end of an execution. An execution without a job gets no lease: its write may have
   * been refused.
   */
  def ended(execution: Long, query: Option[QueryExecution], time: Long): Unit = synchronized {
    val previous = known.get(execution)
    val entry = if (previous != null) previous else query.flatMap(add(execution, _))
    if (previous == null) entry.foreach(ended => Steward.sendState(rootEvent(ended.write)))
    entry.foreach(end(_, time))
  }

  private def end(entry: Entry, time: Long): Unit = synchronized {
    if (entry.endedAt.isEmpty) {
      entry.endedAt = Some(time)
      Steward.sendState(endEvent(entry.write, time))
    }
  }

  /**
   * Detect writes that began or ended from Spark's list of executions, because a listener may miss
   * events. A new execution may still be refused before it writes anything, so a write counts as
   * begun only if it was running at the last look too.
   */
  def look(): Unit = {
    val open = unsettled.synchronized(unsettled.asScala.toSeq)
    val now = System.currentTimeMillis()
    val running = Internals.running()
    running.foreach { case (execution, query) =>
      if (runningAtLastLook(execution)) entry(execution, Some(query))
    }
    runningAtLastLook = running.keySet.toSet
    open.foreach { case (execution, entry) => if (!running.contains(execution)) end(entry, now) }
  }

  /** Forget a query that ended and for which the steward has found or created an outcome. */
  def settled(query: Long): Unit = synchronized {
    unsettled.values().removeIf(entry => entry.write.query == query && entry.endedAt.nonEmpty)
  }

  /** Pass the state that a new steward needs, under the lock that keeps it from changing. */
  def handOver(receive: Seq[Seq[(String, Any)]] => Unit): Unit = synchronized(receive(state))

  private def state: Seq[Seq[(String, Any)]] =
    roots.values().asScala.toSeq.map(rootEvent) ++ unsettled.values().asScala.toSeq.map { entry =>
      entry.endedAt.fold(openEvent(entry.write))(endEvent(entry.write, _))
    }

  /** Storage options may be secrets. They are sent through the steward's pipe and nowhere else. */
  private def rootEvent(write: Write): Seq[(String, Any)] =
    Seq(Event.Kind -> Event.Root, Event.Root -> write.root, Event.Storage -> write.storage)

  private def openEvent(write: Write): Seq[(String, Any)] =
    Seq(
      Event.Kind -> Event.Open,
      Event.Root -> write.root,
      Event.Query -> write.query,
      Event.Storage -> write.storage)

  private def endEvent(write: Write, time: Long): Seq[(String, Any)] =
    Seq(
      Event.Kind -> Event.Ended,
      Event.Root -> write.root,
      Event.Query -> write.query,
      Event.Time -> time)
}
