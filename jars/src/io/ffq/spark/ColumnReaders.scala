package io.ffq.spark

import scala.util.control.NonFatal

import io.ffq.spark.Shared.Metric
import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.metric.CustomTaskMetric
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReader, PartitionReaderFactory}
import org.apache.spark.sql.execution.datasources.v2.python._
import org.apache.spark.sql.execution.python.ffq.{PythonColumns, PythonSettings, TaskReports}
import org.apache.spark.sql.types._
import org.apache.spark.sql.vectorized.ColumnarBatch

/** Makes readers that return the batches of a Python task as columns. */
private class ColumnReaders(
    source: UserDefinedPythonDataSource,
    function: Array[Byte],
    columns: StructType,
    settings: PythonSettings)
    extends PartitionReaderFactory {

  override def supportColumnarReads(partition: InputPartition): Boolean = true

  override def createReader(partition: InputPartition): PartitionReader[InternalRow] =
    new PythonPartitionReaderFactory(source, function, columns, settings.artifacts, None)
      .createReader(partition)

  override def createColumnarReader(partition: InputPartition): PartitionReader[ColumnarBatch] =
    new PartitionReader[ColumnarBatch] {

      private val metrics = TaskReports.metrics()
      private val reports = new TaskReports(PlanNote.text)
      private var rows = 0L

      private val batches = PythonColumns.runOnRow(
        reports.of(source.createPythonFunction(function)),
        UserDefinedPythonDataSource.readInputSchema,
        InternalRow(partition.asInstanceOf[PythonInputPartition].pickedPartition),
        columns.length,
        settings,
        metrics)

      // Spark calls the newest listener first, so this one runs before the listener of its runner,
      // which kills the worker.
      TaskContext.get().addTaskCompletionListener[Unit] { task =>
        if (!task.isFailed() && !task.isInterrupted()) drain()
      }

      override def next(): Boolean = batches.hasNext

      override def get(): ColumnarBatch = {
        val batch = batches.next()
        rows += batch.numRows()
        batch
      }

      override def close(): Unit = ()

      /**
       * Read the remaining batches for a short time, so that the worker can be reused. Spark kills
       * the Python worker of a task that is not read to its end, as after a limit or a merge join.
       */
      private def drain(): Unit = {
        val end = System.nanoTime() + ColumnReaders.DrainNanos
        try while (System.nanoTime() < end && batches.hasNext) batches.next()
        catch { case NonFatal(_) => () }
      }

      override def currentMetricsValues(): Array[CustomTaskMetric] =
        TaskReports.values(source, metrics) ++
          ScanMetrics.reported.map(name => ScanMetrics.task(name, reports.number(name))) :+
          ScanMetrics.task(Metric.Rows, rows)
    }
}

private object ColumnReaders {

  /** Less than a new worker takes to start. */
  private val DrainNanos = 200000000L

  /** Whether generated code can read a type from an Arrow column; else Spark makes rows of it. */
  def canRead(dataType: DataType): Boolean = dataType match {
    case StructType(fields) => fields.forall(field => canRead(field.dataType))
    case ArrayType(element, _) => canRead(element)
    case MapType(key, value, _) => canRead(key) && canRead(value)
    case _: NumericType | _: StringType | BinaryType | BooleanType | DateType | TimestampType |
        TimestampNTZType | _: DayTimeIntervalType => true
    case _ => false
  }
}
