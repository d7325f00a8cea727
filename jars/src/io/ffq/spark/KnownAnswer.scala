package io.ffq.spark

import com.fasterxml.jackson.databind.JsonNode
import io.ffq.spark.Shared.Metric
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.expressions.{Expression, NamedReference}
import org.apache.spark.sql.connector.expressions.aggregate._
import org.apache.spark.sql.connector.read.LocalScan
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** The result of an aggregation, computed from manifests alone: counts, minima and maxima. */
private class KnownAnswer(columns: StructType, row: InternalRow) extends LocalScan {

  override def readSchema(): StructType = columns

  override def rows(): Array[InternalRow] = Array(row)

  override def description(): String = "ffqshuffle manifests"
}

private object KnownAnswer {

  /** Answer an aggregation over all rows of a scan, or return None unless manifests suffice. */
  def of(aggregation: Aggregation, all: StructType, scan: ExchangeScan): Option[KnownAnswer] = {
    val functions = aggregation.aggregateExpressions().toSeq
    val columns = functions.map(column(_).filter(all.fieldNames.contains))
    val isKnown = functions.zip(columns).forall { case (function, name) =>
      function.isInstanceOf[CountStar] || name.nonEmpty
    }
    if (aggregation.groupByExpressions().nonEmpty || !isKnown) None
    else scan.noteWithBounds(columns.flatten.distinct).filter(_.counts).flatMap { note =>
      answer(functions, columns, all, note)
    }
  }

  /** The top-level column of a supported function. Manifests have no bounds of nested fields. */
  private def column(function: AggregateFunc): Option[String] = {
    def name(expression: Expression): Option[String] = expression match {
      case reference: NamedReference if reference.fieldNames().length == 1 =>
        Some(reference.fieldNames()(0))
      case _ => None
    }
    function match {
      case min: Min => name(min.column())
      case max: Max => name(max.column())
      case count: Count if !count.isDistinct => name(count.column())
      case _ => None
    }
  }

  private def answer(
      functions: Seq[AggregateFunc],
      columns: Seq[Option[String]],
      all: StructType,
      note: PlanNote): Option[KnownAnswer] = {
    val results: Seq[Option[(DataType, Any)]] = functions.zip(columns).map {
      case (_: CountStar, _) => Some(LongType -> note.number(Metric.Rows))
      case (function, Some(name)) =>
        note.bounds(name).flatMap(result(function, all(name).dataType, note.number(Metric.Rows), _))
      case _ => None
    }
    if (results.exists(_.isEmpty)) None
    else {
      val fields = results.flatten.zipWithIndex.map { case ((dataType, _), index) =>
        StructField(s"agg_func_$index", dataType)
      }
      Some(new KnownAnswer(StructType(fields), InternalRow.fromSeq(results.flatten.map(_._2))))
    }
  }

  /** The result of a function from a column's bounds: minimum, maximum and number of nulls. */
  private def result(
      function: AggregateFunc,
      dataType: DataType,
      rows: Long,
      bounds: JsonNode): Option[(DataType, Any)] = function match {
    case _: Count => Some(LongType -> (rows - bounds.get(2).asLong()))
    case _: Min => value(bounds.get(0), dataType).map(dataType -> _.orNull)
    case _ => value(bounds.get(1), dataType).map(dataType -> _.orNull)
  }

  /** A value in Catalyst's representation; None for a type that bounds cannot represent. */
  private def value(node: JsonNode, dataType: DataType): Option[Option[Any]] = dataType match {
    case _ if node.isNull => Some(None)
    case ByteType => Some(Some(node.asInt().toByte))
    case ShortType => Some(Some(node.asInt().toShort))
    case IntegerType | DateType => Some(Some(node.asInt()))
    case LongType | TimestampType | TimestampNTZType | _: DayTimeIntervalType =>
      Some(Some(node.asLong()))
    case FloatType => Some(Some(node.asDouble().toFloat))
    case DoubleType => Some(Some(node.asDouble()))
    case decimal: DecimalType =>
      val number = new java.math.BigDecimal(node.asText())
      Some(Some(Decimal(number, decimal.precision, decimal.scale)))
    case StringType => Some(Some(UTF8String.fromString(node.asText())))
    case _ => None
  }
}
