package io.ffq.spark

import com.fasterxml.jackson.databind.JsonNode
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.expressions.{Expression, NamedReference}
import org.apache.spark.sql.connector.expressions.aggregate.{AggregateFunc, Aggregation, Count, CountStar, Max, Min}
import org.apache.spark.sql.connector.read.LocalScan
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** One row that manifests know: numbers of rows, least and greatest values. No part is opened for it. */
private class KnownAnswer(columns: StructType, row: InternalRow) extends LocalScan {

  override def readSchema(): StructType = columns

  override def rows(): Array[InternalRow] = Array(row)

  override def description(): String = "ffqshuffle manifests"
}

private object KnownAnswer {

  /** The answer to an aggregation over all rows of a scan, if all of it is known. */
  def of(aggregation: Aggregation, all: StructType, scan: ExchangeScan): Option[KnownAnswer] =
    if (aggregation.groupByExpressions().nonEmpty) None
    else {
      val functions = aggregation.aggregateExpressions().toSeq
      val columns = functions.map(column(_).filter(all.fieldNames.contains))
      val isKnown = functions.zip(columns).forall { case (f, name) => f.isInstanceOf[CountStar] || name.nonEmpty }
      if (!isKnown) None
      else scan.noteOf(columns.flatten.distinct).filter(_.counts).flatMap(answer(functions, columns, all, _))
    }

  /** The column that a known function is of; manifests know nothing of fields inside, literals and expressions. */
  private def column(function: AggregateFunc): Option[String] = {
    def name(expression: Expression): Option[String] = expression match {
      case reference: NamedReference if reference.fieldNames().length == 1 => Some(reference.fieldNames()(0))
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
    val found: Seq[Option[(DataType, Any)]] = functions.zip(columns).map {
      case (_: CountStar, _) => Some(LongType -> note.number("rows"))
      case (function, Some(name)) =>
        val kind = all(name).dataType
        note.bounds(name).flatMap { known =>
          function match {
            case _: Count => Some(LongType -> (note.number("rows") - known.get(2).asLong()))
            case _: Min => value(known.get(0), kind).map(kind -> _.orNull)
            case _ => value(known.get(1), kind).map(kind -> _.orNull)
          }
        }
      case _ => None
    }
    if (found.exists(_.isEmpty)) None
    else {
      val fields = found.flatten.zipWithIndex.map { case ((kind, _), i) => StructField(s"agg_func_$i", kind) }
      Some(new KnownAnswer(StructType(fields), InternalRow.fromSeq(found.flatten.map(_._2))))
    }
  }

  /** A value as Spark holds it inside; None where the type has no such form here. */
  private def value(node: JsonNode, kind: DataType): Option[Option[Any]] = kind match {
    case _ if node.isNull => Some(None)
    case ByteType => Some(Some(node.asInt().toByte))
    case ShortType => Some(Some(node.asInt().toShort))
    case IntegerType | DateType => Some(Some(node.asInt()))
    case LongType | TimestampType | TimestampNTZType | _: DayTimeIntervalType => Some(Some(node.asLong()))
    case FloatType => Some(Some(node.asDouble().toFloat))
    case DoubleType => Some(Some(node.asDouble()))
    case decimal: DecimalType =>
      Some(Some(Decimal(new java.math.BigDecimal(node.asText()), decimal.precision, decimal.scale)))
    case StringType => Some(Some(UTF8String.fromString(node.asText())))
    case _ => None
  }
}
