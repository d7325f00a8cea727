package io.ffq.spark

import java.io.{BufferedReader, BufferedWriter, InputStreamReader, OutputStreamWriter}
import java.lang.ProcessBuilder.Redirect
import java.nio.charset.StandardCharsets.UTF_8
import java.util.concurrent.{LinkedBlockingQueue, TimeUnit}
import java.util.concurrent.atomic.AtomicLong

import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.ObjectMapper
import com.fasterxml.jackson.module.scala.DefaultScalaModule

import org.apache.spark.{SparkConf, SparkContext}

/**
 * The process beside the driver that does all storage work: attempt log, lease, cancel requests,
 * cleanup. It reads lines from its standard input and ends when that does, however the driver ends.
 * It is told that the driver lives: a driver that is stopped keeps no lease.
 */
private object Steward {

  private val Capacity = 100000
  private val GraceSeconds = 10L
  private val json = new ObjectMapper().registerModule(DefaultScalaModule)

  private val queue = new LinkedBlockingQueue[String](Capacity)
  private val dropped = new AtomicLong
  private var process: Option[Process] = None
  @volatile private var stopped = false

  /**
   * Start the process with the first write; an application that writes no exchange pays nothing.
   * One that has died is started again with the next write.
   */
  def start(conf: SparkConf): Unit = synchronized {
    if (process.isEmpty && !stopped) {
      val command = new ProcessBuilder(Settings.python(conf), "-m", "ffq_spark.spark.steward")
      command.redirectError(Redirect.INHERIT)
      try {
        val started = command.start()
        process = Some(started)
        queue.clear()
        send(hello(conf))
        thread("ffq-steward-writer")(write(started, Settings.leaseSeconds(conf)))
        thread("ffq-steward-reader")(read(started))
      } catch { case NonFatal(error) => complain(error); stopped = true }
    }
  }

  private def hello(conf: SparkConf): Seq[(String, Any)] = Seq(
    "event" -> "hello",
    "initiator" -> Settings.initiator(SparkContext.getOrCreate().applicationId),
    "lease_seconds" -> Settings.leaseSeconds(conf),
    "cleanup" -> conf.getBoolean(Settings.Prefix + "cleanup.enabled", false),
    "cleanup_interval_seconds" -> conf.getTimeAsSeconds(Settings.Prefix + "cleanup.interval", "10min"),
    "cleanup_ttl_seconds" -> conf.getTimeAsSeconds(Settings.Prefix + "cleanup.ttl", "1d"))

  /** Tell of a root and what it takes to reach it; secrets go through the pipe alone. */
  def open(write: Write): Unit =
    send(Seq("event" -> "open", "root" -> write.root, "query" -> write.query, "storage" -> write.storage))

  def send(values: Seq[(String, Any)]): Unit =
    if (!stopped && !queue.offer(json.writeValueAsString(values.toMap))) dropped.incrementAndGet()

  def complain(error: Throwable): Unit =
    System.err.println(s"ffq_spark: ${error.getClass.getSimpleName}: ${error.getMessage}")

  private def write(started: Process, leaseSeconds: Int): Unit = {
    val sink = new BufferedWriter(new OutputStreamWriter(started.getOutputStream, UTF_8))
    val beatNanos = TimeUnit.SECONDS.toNanos(leaseSeconds) / 3
    var nextBeat = System.nanoTime()
    try {
      var open = true
      while (open) {
        val line = queue.poll((nextBeat - System.nanoTime()).max(0), TimeUnit.NANOSECONDS)
        if (line != null && line.nonEmpty) { sink.write(line); sink.newLine() }
        if (System.nanoTime() >= nextBeat) {
          sink.write(json.writeValueAsString(Map("event" -> "beat", "dropped" -> dropped.get)))
          sink.newLine()
          nextBeat = System.nanoTime() + beatNanos
        }
        if (queue.isEmpty) sink.flush()
        open = !(stopped && queue.isEmpty)
      }
      sink.write("""{"event":"bye"}""")
      sink.newLine()
    } finally {
      if (!stopped) synchronized { process = None }
      sink.close()
    }
  }

  private def read(started: Process): Unit = {
    val source = new BufferedReader(new InputStreamReader(started.getInputStream, UTF_8))
    Iterator.continually(source.readLine()).takeWhile(_ != null).foreach { line =>
      val order = json.readTree(line)
      if (order.path("order").asText == "cancel") {
        Cancels.cancel(order.path("query").asLong, order.path("message").asText)
      }
    }
  }

  /** A new application in the same JVM starts anew. */
  def reopen(): Unit = synchronized {
    if (stopped) { process = None; stopped = false }
  }

  /** Let the process finish its work, and never leave it behind. */
  def stop(): Unit = {
    // An empty line wakes the writer, which would else sleep until its next beat.
    val started = synchronized { stopped = true; queue.offer(""); process }
    started.foreach { running =>
      if (!running.waitFor(GraceSeconds, TimeUnit.SECONDS)) running.destroyForcibly()
    }
  }

  private def thread(name: String)(work: => Unit): Unit = {
    val started = new Thread(() => try work catch { case NonFatal(error) => if (!stopped) complain(error) }, name)
    started.setDaemon(true)
    started.start()
  }
}
