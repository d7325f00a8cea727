package io.ffq.spark

import java.io.{BufferedReader, BufferedWriter, File, InputStreamReader, OutputStreamWriter}
import java.lang.ProcessBuilder.Redirect
import java.nio.charset.StandardCharsets.UTF_8
import java.util.concurrent.{LinkedBlockingQueue, TimeUnit}

import scala.util.control.NonFatal

import io.ffq.spark.Shared.StewardProgram

/** A line for the steward. A new steward gets the unread events again, and the current state. */
private case class Line(text: String, isEvent: Boolean)

/**
 * One run of the steward: a process that reads events from its standard input until that ends, and
 * writes orders, one per line, to its standard output.
 */
private class StewardProcess(
    python: String, path: Seq[String], lines: LinkedBlockingQueue[Line])(
    receive: String => Unit, ended: () => Unit) {

  private val process = {
    val command = new ProcessBuilder(python, "-m", StewardProgram.Module)
    command.redirectError(Redirect.INHERIT)
    if (path.nonEmpty) {
      val inherited = Option(command.environment().get("PYTHONPATH")).filter(_.nonEmpty)
      command.environment().put("PYTHONPATH", (path ++ inherited).mkString(File.pathSeparator))
    }
    command.start()
  }
  val startedAt: Long = System.nanoTime()

  thread("ffq-steward-writer")(write())
  thread("ffq-steward-reader")(read())

  def isAlive: Boolean = process.isAlive

  def exitCode: Int = process.exitValue()

  def kill(): Unit = process.destroyForcibly()

  /** Close its input and wait until it exits; kill it after this many seconds. */
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
    try Iterator.continually(source.readLine()).takeWhile(_ != null).foreach(receive)
    finally {
      process.waitFor()
      lines.add(StewardProcess.End)
      ended()
    }
  }

  /** Start a daemon thread. A broken pipe is ignored: the reader reports the process's end. */
  private def thread(name: String)(work: => Unit): Unit = {
    val started = new Thread(() => try work catch { case NonFatal(_) => () }, name)
    started.setDaemon(true)
    started.start()
  }
}

private object StewardProcess {

  /** The last line: it closes the process's input. */
  private val End = Line("", isEvent = false)
}
