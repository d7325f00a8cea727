package io.ffq.spark

import java.util.concurrent.{LinkedBlockingQueue, TimeUnit}
import java.util.concurrent.atomic.AtomicLong

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.ObjectMapper
import com.fasterxml.jackson.module.scala.DefaultScalaModule

import io.ffq.spark.Shared.{PluginSetting, Setting, StewardEvent => Event, StewardOrder => Order}
import org.apache.spark.{SparkConf, SparkContext}

/**
 * Runs the steward: the process beside the driver that does the plugin's storage work (attempt
 * log, leases, cancel requests, outcomes of ended writes, gc).
 *
 * A thread of the driver starts it with the first write, sends it a beat at intervals, and replaces
 * it if it dies or hangs while writes are under way.
 */
private object Steward {

  private val Capacity = 100000
  private val GraceSeconds = 10L
  /** After its first answer a steward answers in milliseconds, whatever storage does. */
  private val PatienceNanos = TimeUnit.SECONDS.toNanos(10)
  private val StartNanos = TimeUnit.SECONDS.toNanos(60)
  /** A process that ran this long had no failure to start. */
  private val HealthyNanos = TimeUnit.SECONDS.toNanos(60)
  private val LongestDelaySeconds = 60L
  private val json = new ObjectMapper().registerModule(DefaultScalaModule)

  private val dropped = new AtomicLong
  private var lines = new LinkedBlockingQueue[Line]
  private var process: Option[StewardProcess] = None
  private var initiator: Option[String] = None
  private var application = 0
  private var runs = 0
  private var failures = 0
  private var notBefore = 0L
  private var unansweredSince: Option[Long] = None
  private var hasAnswered = false
  private var hasEverAnswered = false
  private var stopped = true

  /** Watch an application's writes. The process is started by the first write. */
  def open(conf: SparkConf): Unit = synchronized {
    application += 1
    stopped = false
    process = None
    initiator = None
    lines = new LinkedBlockingQueue[Line]
    runs = 0
    failures = 0
    hasEverAnswered = false
    notBefore = System.nanoTime()
    Writes.clear()
    val own = application
    val keeper = new Thread(() => guarded(keep(conf, own)), "ffq-steward-keeper")
    keeper.setDaemon(true)
    keeper.start()
    notifyAll()
  }

  /**
   * The duration of the lease that a new write promises, or 0 if nobody would renew it: without the
   * listener, and while the process has never worked and fails to start.
   */
  def leaseSeconds(conf: SparkConf): Int = synchronized {
    val isUseless = stopped || failures > 0 && !hasEverAnswered
    if (isUseless) 0 else Settings.leaseSeconds(conf)
  }

  /** Send an event, or count it as dropped if the queue is full. */
  def send(values: Seq[(String, Any)]): Unit = {
    val line = Line(text(values), isEvent = true)
    synchronized {
      if (stopped || lines.size >= Capacity) dropped.incrementAndGet() else lines.add(line)
    }
  }

  /** Send the beginning or end of a write. A new process gets both from [[Writes.handOver]]. */
  def sendState(values: Seq[(String, Any)]): Unit = synchronized {
    if (process.nonEmpty && !stopped) lines.add(Line(text(values), isEvent = false))
    else notifyAll()
  }

  private def text(values: Seq[(String, Any)]): String = json.writeValueAsString(values.toMap)

  /** Report an error on standard error. */
  def report(error: Throwable): Unit =
    report(s"${error.getClass.getSimpleName}: ${error.getMessage}")

  private def report(message: String): Unit = System.err.println(s"ffq_spark: $message")

  private def guarded(work: => Unit): Unit =
    try work catch { case NonFatal(error) => report(error) }

  private def keep(conf: SparkConf, own: Int): Unit = {
    val beatNanos = TimeUnit.SECONDS.toNanos(Settings.leaseSeconds(conf)) / 3
    var nextBeat = System.nanoTime()
    while (synchronized(!stopped && application == own)) {
      guarded {
        val now = System.nanoTime()
        if (now >= nextBeat) {
          Writes.look()
          // After a suspension of the driver, unread answers may be waiting.
          if (now < nextBeat + beatNanos) replaceHung(now)
          beat(now)
          nextBeat = now + beatNanos
        }
        startIfNeeded(conf)
      }
      pause(nextBeat)
    }
  }

  private def pause(nextBeat: Long): Unit = synchronized {
    val until = if (process.isEmpty && !Writes.isEmpty) nextBeat.min(notBefore) else nextBeat
    val millis = TimeUnit.NANOSECONDS.toMillis(until - System.nanoTime()) + 1
    if (!stopped && millis > 0) wait(millis)
  }

  private def beat(now: Long): Unit = synchronized {
    if (process.nonEmpty) {
      val beat = Seq(Event.Kind -> Event.Beat, Event.Dropped -> dropped.get)
      lines.add(Line(text(beat), isEvent = false))
      if (unansweredSince.isEmpty) unansweredSince = Some(now)
    }
  }

  private def replaceHung(now: Long): Unit = synchronized {
    val patience = if (hasAnswered) PatienceNanos else StartNanos
    if (unansweredSince.exists(now - _ >= patience)) process.foreach(_.kill())
  }

  private def startIfNeeded(conf: SparkConf): Unit = {
    val isFree = synchronized(process.isEmpty && !stopped && System.nanoTime() - notBefore >= 0)
    if (isFree && !Writes.isEmpty) try Writes.handOver { state =>
      val first = (hello(conf) +: state).map(values => Line(text(values), isEvent = false))
      synchronized(if (!stopped) {
        lines = new LinkedBlockingQueue[Line]((first ++ lines.asScala.filter(_.isEvent)).asJava)
        unansweredSince = None
        hasAnswered = false
        val (python, path) = (Settings.python(conf), Settings.pythonPath(conf))
        process = Some(new StewardProcess(python, path, lines)(receive, () => ended()))
        runs += 1
      })
    } catch {
      case NonFatal(error) =>
        failed(s"the process beside the driver does not start: ${error.getMessage}")
    }
  }

  private def hello(conf: SparkConf): Seq[(String, Any)] = {
    if (initiator.isEmpty) {
      initiator = Some(Settings.initiator(SparkContext.getOrCreate().applicationId))
    }
    def seconds(name: String, default: String): Long =
      conf.getTimeAsSeconds(Setting.Prefix + name, default)
    Seq(
      Event.Kind -> Event.Hello,
      Event.Initiator -> initiator.get,
      Event.Run -> runs,
      Event.LeaseSeconds -> Settings.leaseSeconds(conf),
      Event.Cleanup -> conf.getBoolean(Setting.Prefix + PluginSetting.CleanupEnabled, false),
      Event.CleanupIntervalSeconds -> seconds(PluginSetting.CleanupInterval, "10min"),
      Event.CleanupTtlSeconds -> seconds(PluginSetting.CleanupTtl, "1d"))
  }

  private def receive(line: String): Unit = try {
    val order = json.readTree(line)
    order.path(Order.Kind).asText match {
      case Order.Answer => synchronized {
          unansweredSince = None
          hasAnswered = true
          hasEverAnswered = true
        }
      case Order.Settled => Writes.settled(order.path(Order.Query).asLong)
      case Order.Cancel =>
        Cancels.cancel(order.path(Order.Query).asLong, order.path(Order.Message).asText)
      case _ =>
    }
  } catch { case NonFatal(error) => report(error) }

  /** Plan the next process: at once, or after a delay if this one ended soon after its start. */
  private def ended(): Unit = synchronized {
    process.filter(!_.isAlive).foreach { last =>
      process = None
      if (System.nanoTime() - last.startedAt >= HealthyNanos) failures = 0
      if (!stopped) failed(
        s"the process beside the driver ended with code ${last.exitCode}; writes start it again")
    }
  }

  /** Plan a restart: at once and with a report after one failure, then with doubling delays. */
  private def failed(message: String): Unit = synchronized {
    if (failures == 0) report(message)
    val delay = if (failures == 0) 0L else (1L << (failures - 1).min(6)).min(LongestDelaySeconds)
    failures += 1
    notBefore = System.nanoTime() + TimeUnit.SECONDS.toNanos(delay)
    notifyAll()
  }

  /** Stop the process after it has finished its work. */
  def stop(): Unit = {
    try if (synchronized(!stopped)) Writes.look() catch { case NonFatal(error) => report(error) }
    val running = synchronized {
      val bye = Line(text(Seq(Event.Kind -> Event.Bye)), isEvent = false)
      if (!stopped && process.nonEmpty) lines.add(bye)
      stopped = true
      notifyAll()
      process
    }
    running.foreach(_.end(GraceSeconds))
  }
}
