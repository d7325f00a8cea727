package io.ffq.spark

import scala.jdk.CollectionConverters._

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, GenericInternalRow}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.connector.metric.{CustomMetric, CustomTaskMetric}
import org.apache.spark.sql.connector.write.{Write => SparkWrite, _}
import org.apache.spark.sql.execution.{ColumnarRule, ColumnarToRowExec, SparkPlan, UnaryExecNode}
import org.apache.spark.sql.execution.datasources.v2._
import org.apache.spark.sql.execution.datasources.v2.python._
import org.apache.spark.sql.execution.datasources.v2.python.ffq.Internals
import org.apache.spark.sql.execution.python.ffq.{PythonColumns, PythonSettings, TaskReports}
import org.apache.spark.sql.execution.streaming.sources.MicroBatchWrite
import org.apache.spark.sql.vectorized.ColumnarBatch

/**
 * Sends rows to the Python writers of an exchange faster than Spark does.
 *
 * Columns are sent as columns instead of being converted to rows first, rows are sent in batches
 * whose size is cheap to compute, and task metrics are computed once instead of every hundred rows.
 */
private object DirectWrites extends ColumnarRule {

  override def postColumnarTransitions: Rule[SparkPlan] = Direct

  private object Direct extends Rule[SparkPlan] {

    override def apply(plan: SparkPlan): SparkPlan = plan.transformUp {
      case write: AppendDataExec if isExchange(write.write) =>
        val query = withoutRows(write.query)
        write.copy(query = query, write = direct(write.write, query))
      case write: OverwriteByExpressionExec if isExchange(write.write) =>
        val query = withoutRows(write.query)
        write.copy(query = query, write = direct(write.write, query))
      // Spark counts the rows that a sink writes, so a micro-batch is sent as rows.
      case write @ WriteToDataSourceV2Exec(batch: MicroBatchWrite, _, _, _, _)
          if isExchange(batch) =>
        write.copy(batchWrite = new ExchangeBatch(batch, ofSink(batch), columnar = false))
    }
  }

  private def isExchange(write: SparkWrite): Boolean =
    !write.isInstanceOf[ExchangeWrite] && Settings.isFormat(write.toString)

  private def isExchange(batch: MicroBatchWrite): Boolean =
    Internals.sinkName(batch.writeSupport).exists(Settings.isFormat)

  /**
   * The sink's own factory. Spark wraps it to pass the number of the micro-batch, which Python
   * writers do not use.
   */
  private def ofSink(batch: MicroBatchWrite)(info: PhysicalWriteInfo): DataWriterFactory =
    batch.writeSupport.createStreamingWriterFactory(info) match {
      case python: PythonStreamingWriterFactory => python
      case _ => batch.createBatchWriterFactory(info)
    }

  private def withoutRows(query: SparkPlan): SparkPlan = query match {
    case ColumnarToRowExec(columns) => BatchesExec(columns)
    case rows => rows
  }

  private def direct(write: SparkWrite, query: SparkPlan): ExchangeWrite =
    new ExchangeWrite(write, query.isInstanceOf[BatchesExec])
}

/** A columnar batch in the form of a row, to pass through Spark's code for rows. */
private class BatchRow(val batch: ColumnarBatch) extends GenericInternalRow(0)

/** Passes each columnar batch on as one [[BatchRow]], which the writer unpacks. */
case class BatchesExec(child: SparkPlan) extends UnaryExecNode {

  override def output: Seq[Attribute] = child.output

  override protected def doExecute(): RDD[InternalRow] =
    child.executeColumnar().mapPartitions(_.map(new BatchRow(_)))

  override protected def withNewChildInternal(child: SparkPlan): BatchesExec = copy(child = child)
}

/** Spark's write of a Python source, with task writers of our own. */
private class ExchangeWrite(python: SparkWrite, columnar: Boolean) extends SparkWrite {

  override def toString: String = python.toString

  override def description(): String = python.description()

  override def supportedCustomMetrics(): Array[CustomMetric] = python.supportedCustomMetrics()

  override def reportDriverMetrics(): Array[CustomTaskMetric] = python.reportDriverMetrics()

  override def toBatch: BatchWrite = {
    val batch = python.toBatch
    new ExchangeBatch(batch, batch.createBatchWriterFactory, columnar)
  }
}

private class ExchangeBatch(
    batch: BatchWrite, factory: PhysicalWriteInfo => DataWriterFactory, columnar: Boolean)
    extends BatchWrite {

  override def toString: String = batch.toString

  override def createBatchWriterFactory(info: PhysicalWriteInfo): DataWriterFactory =
    factory(info) match {
      case python: PythonBatchWriterFactory =>
        new Writers(python, PythonSettings.current(), columnar)
      case other => other
    }

  override def useCommitCoordinator(): Boolean = batch.useCommitCoordinator()

  override def onDataWriterCommit(message: WriterCommitMessage): Unit =
    batch.onDataWriterCommit(message)

  override def commit(messages: Array[WriterCommitMessage]): Unit = batch.commit(messages)

  override def abort(messages: Array[WriterCommitMessage]): Unit = batch.abort(messages)
}

private class Writers(
    python: PythonBatchWriterFactory, settings: PythonSettings, columnar: Boolean)
    extends DataWriterFactory {

  override def createWriter(partition: Int, task: Long): DataWriter[InternalRow] =
    new Writer(python, settings, columnar)
}

/** Runs one task of a write in Python. */
private class Writer(python: PythonBatchWriterFactory, settings: PythonSettings, columnar: Boolean)
    extends DataWriter[InternalRow] {

  private val metrics = TaskReports.metrics()
  private var message: Option[PythonWriterCommitMessage] = None
  private var values = Array.empty[CustomTaskMetric]

  override def writeAll(rows: java.util.Iterator[InternalRow]): Unit = {
    val messages = batches(rows.asScala).flatMap(_.rowIterator().asScala.map(_.getBinary(0))).toSeq
    if (messages.length != 1) {
      throw new IllegalStateException(s"a write task sent ${messages.length} messages instead of 1")
    }
    message = messages.headOption.map(PythonWriterCommitMessage)
    values = TaskReports.values(python.source, metrics)
  }

  private def batches(rows: Iterator[InternalRow]): Iterator[ColumnarBatch] = {
    val function = python.source.createPythonFunction(python.pickledWriteFunc)
    val schema = python.inputSchema
    val session = python.sessionUUID
    if (columnar) {
      val input = rows.map(_.asInstanceOf[BatchRow].batch)
      PythonColumns.runOnColumns(function, schema, input, columns = 1, settings, metrics, session)
    } else PythonColumns.runOnRows(function, schema, rows, columns = 1, settings, metrics, session)
  }

  override def write(row: InternalRow): Unit = throw new UnsupportedOperationException

  override def commit(): WriterCommitMessage = message.orNull

  override def abort(): Unit = ()

  override def close(): Unit = ()

  override def currentMetricsValues(): Array[CustomTaskMetric] = values
}
