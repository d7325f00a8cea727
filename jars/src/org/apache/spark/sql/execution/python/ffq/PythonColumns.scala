package org.apache.spark.sql.execution.python.ffq

import java.io.DataOutputStream

import scala.jdk.CollectionConverters._

import org.apache.arrow.vector.VectorSchemaRoot
import org.apache.arrow.vector.ipc.ArrowStreamWriter

import org.apache.spark.{JobArtifactSet, TaskContext}
import org.apache.spark.api.python.{ChainedPythonFunctions, PythonEvalType, PythonFunction}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.python.ArrowPythonRunner
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.{StructField, StructType}
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnVector, ColumnarBatch}

/** The session's settings for Python workers, collected on the driver. */
case class PythonSettings(
    timeZone: String,
    largeVarTypes: Boolean,
    runner: Map[String, String],
    artifacts: Option[String])

object PythonSettings {

  def current(): PythonSettings = {
    val conf = SQLConf.get
    PythonSettings(
      conf.sessionLocalTimeZone,
      conf.arrowUseLargeVarTypes,
      ArrowPythonRunner.getPythonRunnerConfMap(conf),
      JobArtifactSet.getCurrentJobArtifactState.map(_.uuid))
  }
}

/** Runs a task in Python and returns its batches as the columns that Spark's runner receives. */
object PythonColumns {

  /** Run a function on one row. */
  def runOnRow(
      function: PythonFunction,
      inputs: StructType,
      input: InternalRow,
      columns: Int,
      settings: PythonSettings,
      metrics: Map[String, SQLMetric]): Iterator[ColumnarBatch] = {
    // Python expects a row nested in another.
    val rows = Iterator.single[InternalRow](new GenericInternalRow(Array[Any](input)))
    results(new Runner(function, inputs, settings, metrics, None), Iterator.single(rows), columns)
  }

  /** Run a function on rows, in batches of limited size. */
  def runOnRows(
      function: PythonFunction,
      inputs: StructType,
      input: Iterator[InternalRow],
      columns: Int,
      settings: PythonSettings,
      metrics: Map[String, SQLMetric],
      session: Option[String]): Iterator[ColumnarBatch] = {
    val runner = new BatchRunner(function, inputs, settings, metrics, session) {

      private lazy val batches = new RowBatches(inputs, arrowWriter)

      override protected def fill(): Boolean = batches.next(input)
    }
    results(runner, Iterator.empty, columns)
  }

  /** Run a function on columnar batches, without converting them to rows. */
  def runOnColumns(
      function: PythonFunction,
      inputs: StructType,
      input: Iterator[ColumnarBatch],
      columns: Int,
      settings: PythonSettings,
      metrics: Map[String, SQLMetric],
      session: Option[String]): Iterator[ColumnarBatch] = {
    val runner = new BatchRunner(function, inputs, settings, metrics, session) {

      private lazy val batches = new ColumnBatches(root, inputs, input)

      override protected def fill(): Boolean = batches.next()
    }
    results(runner, Iterator.empty, columns)
  }

  private def results(
      runner: Runner,
      input: Iterator[Iterator[InternalRow]],
      columns: Int): Iterator[ColumnarBatch] = {
    val context = TaskContext.get()
    runner.compute(input, context.partitionId(), context).map { batch =>
      // Python returns the columns as the fields of one struct.
      val struct = batch.column(0).asInstanceOf[ArrowColumnVector]
      val vectors = Array.tabulate[ColumnVector](columns) { child =>
        new SharedColumn(struct.getChild(child))
      }
      new ColumnarBatch(vectors, batch.numRows())
    }
  }
}

private class Runner(
    function: PythonFunction,
    inputs: StructType,
    settings: PythonSettings,
    metrics: Map[String, SQLMetric],
    session: Option[String])
  extends ArrowPythonRunner(
    Seq((ChainedPythonFunctions(Seq(function)), 0L)),
    PythonEvalType.SQL_MAP_ARROW_ITER_UDF,
    Array(Array(0)),
    StructType(Array(StructField("struct", inputs))),
    settings.timeZone,
    settings.largeVarTypes,
    settings.runner,
    metrics,
    settings.artifacts,
    session)

/** A runner that takes its batches from `fill` instead of Spark's iterator of rows. */
private abstract class BatchRunner(
    function: PythonFunction,
    inputs: StructType,
    settings: PythonSettings,
    metrics: Map[String, SQLMetric],
    session: Option[String])
  extends Runner(function, inputs, settings, metrics, session) {

  /** Fill the root with the next batch, or return false if no batch is left. */
  protected def fill(): Boolean

  override protected def writeNextBatchToArrowStream(
      root: VectorSchemaRoot,
      writer: ArrowStreamWriter,
      out: DataOutputStream,
      ignored: Iterator[Iterator[InternalRow]]): Boolean = {
    val more = fill()
    if (more) {
      writer.writeBatch()
      val bytes = root.getFieldVectors.asScala.map(_.getBufferSize.toLong).sum
      pythonMetrics("pythonDataSent") += bytes
    } else close()
    more
  }
}

/** A column in the runner's memory. The runner reuses the memory for each batch, and frees it. */
private class SharedColumn(column: ArrowColumnVector)
    extends ArrowColumnVector(column.getValueVector) {

  override def closeIfFreeable(): Unit = ()

  override def close(): Unit = ()
}
