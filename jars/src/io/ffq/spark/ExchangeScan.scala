package io.ffq.spark

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.metric.{CustomMetric, CustomTaskMetric}
import org.apache.spark.sql.connector.read.{Batch, InputPartition, PartitionReader, PartitionReaderFactory, Scan}
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream
import org.apache.spark.sql.execution.datasources.v2.python.{PythonCustomMetric, PythonInputPartition, PythonPartitionReaderFactory, UserDefinedPythonDataSource}
import org.apache.spark.sql.execution.datasources.v2.python.ffq.Internals
import org.apache.spark.sql.execution.python.ffq.{PythonColumns, PythonSettings}
import org.apache.spark.sql.types._
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import org.apache.spark.sql.vectorized.ColumnarBatch

/**
 * A scan of an exchange that gives Spark the Arrow batches of its Python tasks as columns. Spark's own
 * scan of a Python source turns each batch into rows one by one, outside of generated code.
 */
private class ExchangeScan(python: Scan, source: ScanSource, columns: StructType, options: CaseInsensitiveStringMap)
    extends Scan {

  override def readSchema(): StructType = python.readSchema()

  override def description(): String = python.description()

  override def supportedCustomMetrics(): Array[CustomMetric] = python.supportedCustomMetrics()

  override def toMicroBatchStream(checkpoint: String): MicroBatchStream = python.toMicroBatchStream(checkpoint)

  override def toBatch(): Batch =
    if (ColumnReaders.canRead(columns)) new ExchangeBatch(source, columns, options) else python.toBatch()

  override def columnarSupportMode(): Scan.ColumnarSupportMode =
    if (ColumnReaders.canRead(columns)) Scan.ColumnarSupportMode.SUPPORTED else Scan.ColumnarSupportMode.UNSUPPORTED
}

private class ExchangeBatch(source: ScanSource, columns: StructType, options: CaseInsensitiveStringMap) extends Batch {

  private lazy val plan = source.getOrCreateReadInfo(Settings.Format, options, columns, false)

  override def planInputPartitions(): Array[InputPartition] =
    plan.partitions.zipWithIndex.map { case (task, index) => PythonInputPartition(index, task) }.toArray

  override def createReaderFactory(): PartitionReaderFactory =
    new ColumnReaders(Internals.source(source), plan.func, columns, PythonSettings.current())
}

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

      private val metrics = PythonCustomMetric.pythonMetrics

      private val batches = PythonColumns.run(
        source.createPythonFunction(function),
        UserDefinedPythonDataSource.readInputSchema,
        Iterator.single(InternalRow(partition.asInstanceOf[PythonInputPartition].pickedPartition)),
        columns.length,
        settings,
        metrics)

      override def next(): Boolean = batches.hasNext

      override def get(): ColumnarBatch = batches.next()

      override def close(): Unit = ()

      override def currentMetricsValues(): Array[CustomTaskMetric] =
        source.createPythonTaskMetrics(metrics.map { case (name, metric) => name -> metric.value })
    }
}

private object ColumnReaders {

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
