package io.ffq.spark

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import io.ffq.spark.Shared.{StewardEvent => Event, TaskField, TaskState}
import org.apache.spark._
import org.apache.spark.ffq.Internals
import org.apache.spark.scheduler._
import org.apache.spark.sql.execution.SQLExecution
import org.apache.spark.sql.execution.ffq.{Internals => SqlInternals}
import org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionEnd

/**
 * Records the task attempts, stages, jobs and lost executors of each write of an exchange.
 *
 * The records explain and never decide. The plugin installs the listener; without the plugin it can
 * be set in `spark.extraListeners`.
 */
class FfqListener(conf: SparkConf) extends SparkListener {

  private val jobs = Recent.map[Int, Job]()
  private val stages = Recent.map[Int, Job]()

  if (Settings.isSupportedSpark) Steward.open(conf)

  private case class Job(id: Int, execution: Long, write: Write, stage: Int)

  override def onJobStart(event: SparkListenerJobStart): Unit = guarded {
    for {
      properties <- Option(event.properties)
      execution <- Option(properties.getProperty(SQLExecution.EXECUTION_ID_KEY))
      write <- Writes.of(execution.toLong)
      stage <- event.stageInfos.maxByOption(_.stageId)
    } {
      val job = Job(event.jobId, execution.toLong, write, stage.stageId)
      jobs.put(job.id, job)
      Cancels.started(execution.toLong, job.id)
      if (!Internals.feedsShuffle(stage) && !isBroadcast(event)) {
        stages.put(stage.stageId, job)
        send(job, Event.JobStart,
          TaskField.Stage -> stage.stageId, Event.Tasks -> stage.numTasks, Event.Time -> event.time)
      }
    }
  }

  private def isBroadcast(event: SparkListenerJobStart): Boolean =
    Option(event.properties.getProperty("spark.job.description"))
      .exists(_.startsWith("broadcast exchange"))

  override def onTaskStart(event: SparkListenerTaskStart): Unit = of(event.stageId) { job =>
    send(job, Event.TaskStart, task(event.stageId, event.stageAttemptId, event.taskInfo): _*)
  }

  override def onTaskEnd(event: SparkListenerTaskEnd): Unit = of(event.stageId) { job =>
    val (state, reason) = TaskOutcome(event.reason)
    send(job, Event.TaskEnd, task(event.stageId, event.stageAttemptId, event.taskInfo) ++ Seq(
      TaskField.FinishMs -> event.taskInfo.finishTime,
      TaskField.State -> state,
      TaskField.Reason -> reason): _*)
  }

  private def task(stage: Int, stageAttempt: Int, info: TaskInfo): Seq[(String, Any)] = Seq(
    TaskField.Stage -> stage,
    TaskField.StageAttempt -> stageAttempt,
    TaskField.MapTask -> info.partitionId,
    TaskField.Task -> info.taskId,
    TaskField.AttemptNumber -> info.attemptNumber,
    TaskField.Executor -> info.executorId,
    TaskField.Host -> info.host,
    TaskField.Speculative -> info.speculative,
    TaskField.LaunchMs -> info.launchTime)

  override def onStageCompleted(event: SparkListenerStageCompleted): Unit =
    of(event.stageInfo.stageId) { job =>
      val info = event.stageInfo
      send(job, Event.StageEnd,
        TaskField.Stage -> info.stageId,
        TaskField.StageAttempt -> info.attemptNumber(),
        TaskField.State ->
          info.failureReason.map(_ => TaskState.Failed).getOrElse(TaskState.Success),
        TaskField.Reason -> info.failureReason.getOrElse(""))
    }

  override def onJobEnd(event: SparkListenerJobEnd): Unit = guarded {
    Option(jobs.remove(event.jobId)).foreach { job =>
      Cancels.ended(job.execution, job.id)
      if (stages.get(job.stage) == job) {
        val reason = event.jobResult match {
          case JobSucceeded => ""
          case failed => TaskOutcome.firstLine(failed.toString)
        }
        send(job, Event.JobEnd, TaskField.Reason -> reason, Event.Time -> event.time)
      }
    }
  }

  override def onOtherEvent(event: SparkListenerEvent): Unit = event match {
    case end: SparkListenerSQLExecutionEnd =>
      guarded(Writes.ended(end.executionId, SqlInternals.query(end), end.time))
    case _ =>
  }

  override def onExecutorRemoved(event: SparkListenerExecutorRemoved): Unit = guarded {
    val running = jobs.synchronized(jobs.values().asScala.toSeq)
    running.distinctBy(_.write.query).foreach { job =>
      send(job, Event.ExecutorLost,
        TaskField.Executor -> event.executorId,
        TaskField.Reason -> event.reason,
        Event.Time -> event.time)
    }
  }

  override def onApplicationEnd(event: SparkListenerApplicationEnd): Unit = guarded(Steward.stop())

  private def of(stage: Int)(use: Job => Unit): Unit = {
    val job = stages.get(stage)
    if (job != null) guarded(use(job))
  }

  private def send(job: Job, event: String, values: (String, Any)*): Unit =
    Steward.send(Seq(
      Event.Kind -> event,
      Event.Root -> job.write.root,
      Event.Query -> job.write.query,
      Event.Job -> job.id) ++ values)

  /** Report errors instead of throwing: Spark drops a listener that throws. */
  private def guarded(work: => Unit): Unit =
    if (Settings.isSupportedSpark) {
      try work
      catch { case NonFatal(error) => Steward.report(error) }
    }
}

object FfqListener {

  /** Add the listener to a running context, once. */
  private[spark] def install(sc: SparkContext): Unit = {
    val named = sc.getConf.get("spark.extraListeners", "").split(",").map(_.trim)
    if (!named.contains(classOf[FfqListener].getName)) {
      Internals.listen(sc, new FfqListener(sc.getConf))
    }
  }
}

/** Maps the end of a task to its state and a reason. */
private object TaskOutcome {

  private val Longest = 500

  def apply(reason: TaskEndReason): (String, String) = reason match {
    case Success => (TaskState.Success, "")
    case killed: TaskKilled => (TaskState.Killed, firstLine(killed.reason))
    case denied: TaskCommitDenied => (TaskState.Killed, firstLine(denied.toErrorString))
    case lost: ExecutorLostFailure =>
      (TaskState.Lost, firstLine(lost.reason.getOrElse("executor lost")))
    case failed: ExceptionFailure => (TaskState.Failed, cause(failed))
    case other => (TaskState.Failed, firstLine(other.toString))
  }

  /** The message of a Python failure: the last line of its traceback that names an error. */
  private def cause(failed: ExceptionFailure): String = {
    val text = Option(failed.description).filter(_.nonEmpty).getOrElse(failed.className)
    val named = text.linesIterator
      .map(_.trim)
      .filter(_.matches("[A-Za-z_.]*(Error|Exception)\\b.*"))
    firstLine(named.toSeq.lastOption.getOrElse(text))
  }

  def firstLine(text: String): String =
    Option(text).getOrElse("").linesIterator.nextOption().getOrElse("").take(Longest)
}
