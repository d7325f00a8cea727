package io.ffq.spark

import scala.util.control.NonFatal

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.metric.CustomTaskMetric
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReader, PartitionReaderFactory}
import org.apache.spark.sql.execution.datasources.v2.python.{PythonInputPartition, PythonPartitionReaderFactory, UserDefinedPythonDataSource}
import org.apache.spark.sql.execution.python.ffq.{PythonColumns, PythonSettings, TaskReports}
import org.apache.spark.sql.types._
import org.apache.spark.sql.vectorized.ColumnarBatch

/** Readers that pass the batches of a Python task on as columns. */
private class ColumnReaders(
    source: UserDefinedPythonDataSource,
    function: Array[Byte],
    columns: StructType,
    settings: PythonSettings)
    extends PartitionReaderFactory {

  override def supportColumnarReads(partition: InputPartition): Boolean = true

  override def createReader(partition: InputPartition): PartitionReader[InternalRow] =
    new PythonPartitionReaderFactory(source, function, columns, settings.artifacts, None).createReader(partition)

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

      // The newest listener comes first: that of Spark's runner, which is there already, ends the worker.
      TaskContext.get().addTaskCompletionListener[Unit] { task =>
        if (!task.isFailed() && !task.isInterrupted()) hearOut()
      }

      override def next(): Boolean = batches.hasNext

      override def get(): ColumnarBatch = {
        val batch = batches.next()
        rows += batch.numRows()
        batch
      }

      override def close(): Unit = ()

      /**
       * A merge join ends with its first side, and a limit with its last row. Spark ends the Python worker
       * of a task that was not read to its end, and the next task has to start another one.
       */
      private def hearOut(): Unit = {
        val end = System.nanoTime() + ColumnReaders.Patience
        try while (System.nanoTime() < end && batches.hasNext) batches.next()
        catch { case NonFatal(_) => () }
      }

      override def currentMetricsValues(): Array[CustomTaskMetric] =
        source.createPythonTaskMetrics(metrics.map { case (name, metric) => name -> metric.value }) ++
          ScanMetrics.reported.map(name => ScanMetrics.task(name, reports.number(name))) :+ ScanMetrics.task("rows", rows)
    }
}

private object ColumnReaders {

  /** In nanoseconds; a worker takes longer to start. */
  private val Patience = 200000000L

  /** Types that generated code reads from an Arrow column; rows of others are made by Spark. */
  def canRead(kind: DataType): Boolean = kind match {
    case StructType(fields) => fields.forall(field => canRead(field.dataType))
    case ArrayType(element, _) => canRead(element)
    case MapType(key, value, _) => canRead(key) && canRead(value)
    case _: NumericType | _: StringType | BinaryType | BooleanType | DateType | TimestampType | TimestampNTZType |
        _: DayTimeIntervalType => true
    case _ => false
  }
}
