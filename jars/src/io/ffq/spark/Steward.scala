package io.ffq.spark

import java.util.concurrent.{LinkedBlockingQueue, TimeUnit}
import java.util.concurrent.atomic.AtomicLong

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.ObjectMapper
import com.fasterxml.jackson.module.scala.DefaultScalaModule

import org.apache.spark.{SparkConf, SparkContext}

/**
 * The process beside the driver that does all storage work: attempt log, lease, cancel requests,
 * ends of writes, cleanup. A thread of the driver starts it with the first write, tells it that the
 * driver lives, and replaces one that has died or hangs while writes are under way.
 */
private object Steward {

  private val Capacity = 100000
  private val GraceSeconds = 10L
  /** A steward that has answered once answers within milliseconds, however slow storage is. */
  private val PatienceNanos = TimeUnit.SECONDS.toNanos(10)
  private val StartNanos = TimeUnit.SECONDS.toNanos(60)
  /** A process that lived this long did not fail because of how it was started. */
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
  private var stopped = true

  /** Begin to look after an application's writes. One that writes no exchange starts no process. */
  def open(conf: SparkConf): Unit = synchronized {
    application += 1
    stopped = false
    process = None
    initiator = None
    lines = new LinkedBlockingQueue[Line]
    runs = 0
    failures = 0
    notBefore = System.nanoTime()
    Writes.clear()
    val own = application
    val keeper = new Thread(() => keep(conf, own), "ffq-steward-keeper")
    keeper.setDaemon(true)
    keeper.start()
    notifyAll()
  }

  /** Tell of an event; what does not fit into the queue is lost. */
  def send(values: Seq[(String, Any)]): Unit = {
    val line = Line(text(values), isEvent = true)
    synchronized {
      if (stopped || lines.size >= Capacity) dropped.incrementAndGet() else lines.add(line)
    }
  }

  /** Tell that a write began or ended; a process that is started later is told by `Writes`. */
  def sendState(values: Seq[(String, Any)]): Unit = synchronized {
    if (process.nonEmpty && !stopped) lines.add(Line(text(values), isEvent = false)) else notifyAll()
  }

  private def text(values: Seq[(String, Any)]): String = json.writeValueAsString(values.toMap)

  def complain(error: Throwable): Unit = complain(s"${error.getClass.getSimpleName}: ${error.getMessage}")

  private def complain(message: String): Unit = System.err.println(s"ffq_spark: $message")

  private def keep(conf: SparkConf, own: Int): Unit = {
    val beatNanos = TimeUnit.SECONDS.toNanos(Settings.leaseSeconds(conf)) / 3
    var nextBeat = System.nanoTime()
    while (synchronized(!stopped && application == own)) {
      try {
        val now = System.nanoTime()
        if (now >= nextBeat) {
          Writes.look()
          // A driver that slept has not read the answers that wait for it.
          if (now < nextBeat + beatNanos) replaceHung(now)
          beat(now)
          nextBeat = now + beatNanos
        }
        startIfNeeded(conf)
      } catch { case NonFatal(error) => complain(error) }
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
      lines.add(Line(text(Seq("event" -> "beat", "dropped" -> dropped.get)), isEvent = false))
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
        process = Some(new StewardProcess(Settings.python(conf), lines)(hear, () => gone()))
        runs += 1
      })
    } catch {
      case NonFatal(error) => failed(s"the process beside the driver does not start: ${error.getMessage}")
    }
  }

  private def hello(conf: SparkConf): Seq[(String, Any)] = {
    if (initiator.isEmpty) initiator = Some(Settings.initiator(SparkContext.getOrCreate().applicationId))
    Seq(
      "event" -> "hello",
      "initiator" -> initiator.get,
      "run" -> runs,
      "lease_seconds" -> Settings.leaseSeconds(conf),
      "cleanup" -> conf.getBoolean(Settings.Prefix + "cleanup.enabled", false),
      "cleanup_interval_seconds" -> conf.getTimeAsSeconds(Settings.Prefix + "cleanup.interval", "10min"),
      "cleanup_ttl_seconds" -> conf.getTimeAsSeconds(Settings.Prefix + "cleanup.ttl", "1d"))
  }

  private def hear(line: String): Unit = try {
    val order = json.readTree(line)
    order.path("order").asText match {
      case "answer" => synchronized { unansweredSince = None; hasAnswered = true }
      case "settled" => Writes.settled(order.path("query").asLong)
      case "cancel" => Cancels.cancel(order.path("query").asLong, order.path("message").asText)
      case _ =>
    }
  } catch { case NonFatal(error) => complain(error) }

  /** A process has ended: the next one starts at once, or after a delay if this one lived briefly. */
  private def gone(): Unit = synchronized {
    process.filter(!_.isAlive).foreach { ended =>
      process = None
      if (System.nanoTime() - ended.startedAt >= HealthyNanos) failures = 0
      if (!stopped) failed(s"the process beside the driver ended with code ${ended.exitCode}; writes start it again")
    }
  }

  /** Plan the next start. The first failure of a row is told and costs no time; then delays double. */
  private def failed(message: String): Unit = synchronized {
    if (failures == 0) complain(message)
    val delay = if (failures == 0) 0L else (1L << (failures - 1).min(6)).min(LongestDelaySeconds)
    failures += 1
    notBefore = System.nanoTime() + TimeUnit.SECONDS.toNanos(delay)
    notifyAll()
  }

  /** Let the process finish its work. */
  def stop(): Unit = {
    try if (synchronized(!stopped)) Writes.look() catch { case NonFatal(error) => complain(error) }
    val running = synchronized {
      if (!stopped && process.nonEmpty) lines.add(Line("""{"event":"bye"}""", isEvent = false))
      stopped = true
      notifyAll()
      process
    }
    running.foreach(_.end(GraceSeconds))
  }
}
