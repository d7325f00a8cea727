package io.ffq.spark

import scala.jdk.CollectionConverters._

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, GenericInternalRow}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.connector.metric.{CustomMetric, CustomTaskMetric}
import org.apache.spark.sql.connector.write.{BatchWrite, DataWriter, DataWriterFactory, PhysicalWriteInfo, Write => SparkWrite, WriterCommitMessage}
import org.apache.spark.sql.execution.{ColumnarRule, ColumnarToRowExec, SparkPlan, UnaryExecNode}
import org.apache.spark.sql.execution.datasources.v2.{AppendDataExec, OverwriteByExpressionExec, WriteToDataSourceV2Exec}
import org.apache.spark.sql.execution.datasources.v2.python.{PythonBatchWriterFactory, PythonStreamingWriterFactory, PythonWriterCommitMessage}
import org.apache.spark.sql.execution.datasources.v2.python.ffq.Internals
import org.apache.spark.sql.execution.python.ffq.{PythonColumns, PythonSettings, TaskReports}
import org.apache.spark.sql.execution.streaming.sources.MicroBatchWrite
import org.apache.spark.sql.vectorized.ColumnarBatch

/**
 * Shortens the way of rows to the Python writers of an exchange: columns go there without becoming
 * rows first, rows in batches whose size costs little to know, and nothing is counted anew every
 * hundred rows.
 */
private object DirectWrites extends ColumnarRule {

  override def postColumnarTransitions: Rule[SparkPlan] = Direct

  private object Direct extends Rule[SparkPlan] {

    override def apply(plan: SparkPlan): SparkPlan = plan.transformUp {
      case write: AppendDataExec if isExchange(write.write) =>
        val query = direct(write.query)
        write.copy(query = query, write = new ExchangeWrite(write.write, query.isInstanceOf[BatchesExec]))
      case write: OverwriteByExpressionExec if isExchange(write.write) =>
        val query = direct(write.query)
        write.copy(query = query, write = new ExchangeWrite(write.write, query.isInstanceOf[BatchesExec]))
      // Spark counts the rows that a sink has written: they stay rows.
      case write @ WriteToDataSourceV2Exec(batch: MicroBatchWrite, _, _, _, _) if isExchange(batch) =>
        write.copy(batchWrite = new ExchangeBatch(batch, ofSink(batch), columnar = false))
    }
  }

  private def isExchange(write: SparkWrite): Boolean =
    !write.isInstanceOf[ExchangeWrite] && write.toString == Settings.Format

  private def isExchange(batch: MicroBatchWrite): Boolean =
    Internals.sinkName(batch.writeSupport).contains(Settings.Format)

  /** The sink's own factory, without the one around it that adds the batch's number: no Python writer asks for it. */
  private def ofSink(batch: MicroBatchWrite)(info: PhysicalWriteInfo): DataWriterFactory =
    batch.writeSupport.createStreamingWriterFactory(info) match {
      case python: PythonStreamingWriterFactory => python
      case _ => batch.createBatchWriterFactory(info)
    }

  private def direct(query: SparkPlan): SparkPlan = query match {
    case ColumnarToRowExec(columns) => BatchesExec(columns)
    case rows => rows
  }
}

/** A columnar batch on its way through Spark's code for rows. */
private class BatchRow(val batch: ColumnarBatch) extends GenericInternalRow(0)

/** Each batch as one row, for the writer behind it, which knows. */
case class BatchesExec(child: SparkPlan) extends UnaryExecNode {

  override def output: Seq[Attribute] = child.output

  override protected def doExecute(): RDD[InternalRow] =
    child.executeColumnar().mapPartitions(_.map(new BatchRow(_)))

  override protected def withNewChildInternal(child: SparkPlan): BatchesExec = copy(child = child)
}

/** Spark's own write of a Python source with another way to its tasks. */
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

private class ExchangeBatch(batch: BatchWrite, factory: PhysicalWriteInfo => DataWriterFactory, columnar: Boolean)
  extends BatchWrite {

  override def toString: String = batch.toString

  override def createBatchWriterFactory(info: PhysicalWriteInfo): DataWriterFactory = factory(info) match {
    case python: PythonBatchWriterFactory => new Writers(python, PythonSettings.current(), columnar)
    case other => other
  }

  override def useCommitCoordinator(): Boolean = batch.useCommitCoordinator()

  override def onDataWriterCommit(message: WriterCommitMessage): Unit = batch.onDataWriterCommit(message)

  override def commit(messages: Array[WriterCommitMessage]): Unit = batch.commit(messages)

  override def abort(messages: Array[WriterCommitMessage]): Unit = batch.abort(messages)
}

private class Writers(python: PythonBatchWriterFactory, settings: PythonSettings, columnar: Boolean)
  extends DataWriterFactory {

  override def createWriter(partition: Int, task: Long): DataWriter[InternalRow] = new DataWriter[InternalRow] {

    private val metrics = TaskReports.metrics()
    private var message: Option[PythonWriterCommitMessage] = None
    private var shown = Array.empty[CustomTaskMetric]

    override def writeAll(rows: java.util.Iterator[InternalRow]): Unit = {
      val function = python.source.createPythonFunction(python.pickledWriteFunc)
      val answers =
        if (columnar) {
          val batches = rows.asScala.map(_.asInstanceOf[BatchRow].batch)
          PythonColumns.runOnColumns(
            function, python.inputSchema, batches, columns = 1, settings, metrics, python.sessionUUID)
        } else PythonColumns.runOnRows(
          function, python.inputSchema, rows.asScala, columns = 1, settings, metrics, python.sessionUUID)
      val found = answers.flatMap(_.rowIterator().asScala.map(_.getBinary(0))).toSeq
      if (found.length != 1) throw new IllegalStateException(s"a write task sent ${found.length} messages")
      message = found.headOption.map(PythonWriterCommitMessage)
      shown = python.source.createPythonTaskMetrics(metrics.map { case (name, metric) => name -> metric.value })
    }

    override def write(row: InternalRow): Unit = throw new UnsupportedOperationException

    override def commit(): WriterCommitMessage = message.orNull

    override def abort(): Unit = ()

    override def close(): Unit = ()

    override def currentMetricsValues(): Array[CustomTaskMetric] = shown
  }
}
