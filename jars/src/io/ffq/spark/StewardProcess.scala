package io.ffq.spark

import java.io.{BufferedReader, BufferedWriter, InputStreamReader, OutputStreamWriter}
import java.lang.ProcessBuilder.Redirect
import java.nio.charset.StandardCharsets.UTF_8
import java.util.concurrent.{LinkedBlockingQueue, TimeUnit}

import scala.util.control.NonFatal

/** A line for the steward. Its successor gets the events that it has not read, and the state anew. */
private case class Line(text: String, isEvent: Boolean)

/**
 * One run of the steward: a process that reads lines from its standard input until that ends, and
 * gives orders, one a line, on its standard output.
 */
private class StewardProcess(python: String, lines: LinkedBlockingQueue[Line])(hear: String => Unit, gone: () => Unit) {

  private val process = {
    val command = new ProcessBuilder(python, "-m", "ffq_spark.spark.steward")
    command.redirectError(Redirect.INHERIT)
    command.start()
  }
  val startedAt: Long = System.nanoTime()

  thread("ffq-steward-writer")(write())
  thread("ffq-steward-reader")(read())

  def isAlive: Boolean = process.isAlive

  def exitCode: Int = process.exitValue()

  def kill(): Unit = process.destroyForcibly()

  /** Close its input, let it finish its work, and never leave it behind. */
  def end(seconds: Long): Unit = {
    lines.add(StewardProcess.End)
    if (!process.waitFor(seconds, TimeUnit.SECONDS)) process.destroyForcibly()
  }

  private def write(): Unit = {
    val sink = new BufferedWriter(new OutputStreamWriter(process.getOutputStream, UTF_8))
    try {
      var line = lines.take()
      while (line != StewardProcess.End) {
        sink.write(line.text)
        sink.newLine()
        if (lines.isEmpty) sink.flush()
        line = lines.take()
      }
    } finally sink.close()
  }

  private def read(): Unit = {
    val source = new BufferedReader(new InputStreamReader(process.getInputStream, UTF_8))
    try Iterator.continually(source.readLine()).takeWhile(_ != null).foreach(hear)
    finally {
      process.waitFor()
      lines.add(StewardProcess.End)
      gone()
    }
  }

  /** A pipe that breaks says that the process has ended, and the driver sees that by itself. */
  private def thread(name: String)(work: => Unit): Unit = {
    val started = new Thread(() => try work catch { case NonFatal(_) => () }, name)
    started.setDaemon(true)
    started.start()
  }
}

private object StewardProcess {

  /** Ends the input. */
  private val End = Line("", isEvent = false)
}
