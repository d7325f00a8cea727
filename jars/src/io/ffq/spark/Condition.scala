package io.ffq.spark

import java.util.Base64

import com.fasterxml.jackson.databind.node.{ArrayNode, ObjectNode}
import io.ffq.spark.Shared.FilterField
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.util.truncatedString
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/**
 * A condition on one column that can prune parts: `in`, `<`, `<=`, `>` or `>=`.
 *
 * Its values are Catalyst's. Spark's filters for data sources hold Java's values instead:
 * `java.sql.Date` lacks ten days of 1582, and `String` cannot hold bytes that are not UTF-8. A null
 * among the values of `in` matches nulls.
 */
private[spark] case class Condition(column: String, op: String, values: Seq[Literal]) {

  def write(document: ObjectNode): Unit = {
    document.put(FilterField.Column, column).put(FilterField.Op, op)
    values.foreach(Condition.write(_, document.withArrayProperty(FilterField.Values)))
  }

  override def toString: String =
    truncatedString(values, s"$column $op [", ", ", "]", SQLConf.get.maxToStringFields)
}

private[spark] object Condition {

  /** Convert a filter of Spark's, or return None if it cannot prune. */
  def of(filter: Expression): Option[Condition] = filter match {
    case EqualTo(Column(name), value: Literal) => among(name, Seq(value))
    case EqualTo(value: Literal, Column(name)) => among(name, Seq(value))
    case EqualNullSafe(Column(name), value: Literal) => Some(Condition(name, "in", Seq(value)))
    case EqualNullSafe(value: Literal, Column(name)) => Some(Condition(name, "in", Seq(value)))
    case In(Column(name), values) if values.forall(_.isInstanceOf[Literal]) =>
      among(name, values.map(_.asInstanceOf[Literal]))
    case InSet(Column(name), values) =>
      among(name, values.toSeq.map(Literal(_, filter.children.head.dataType)))
    case IsNull(Column(name)) => Some(Condition(name, "in", Seq(Literal(null))))
    case LessThan(left, right) => compare(left, right, "<", ">")
    case LessThanOrEqual(left, right) => compare(left, right, "<=", ">=")
    case GreaterThan(left, right) => compare(left, right, ">", "<")
    case GreaterThanOrEqual(left, right) => compare(left, right, ">=", "<=")
    case Column(name) if filter.dataType == BooleanType => among(name, Seq(Literal(true)))
    case _ => None
  }

  /** The condition that a column equals one of the values; null equals no value. */
  def among(column: String, values: Seq[Literal]): Option[Condition] =
    Some(Condition(column, "in", values.filter(_.value != null)))

  private def compare(
      left: Expression, right: Expression, op: String, reversed: String): Option[Condition] =
    (left, right) match {
      case (Column(name), value: Literal) if value.value != null =>
        Some(Condition(name, op, Seq(value)))
      case (value: Literal, Column(name)) if value.value != null =>
        Some(Condition(name, reversed, Seq(value)))
      case _ => None
    }

  /** Matches a column of a type that Spark compares as its stored values compare. */
  private object Column {

    def unapply(expression: Expression): Option[String] = expression match {
      case column: AttributeReference if FfqScanExec.isOrdered(column.dataType) => Some(column.name)
      case _ => None
    }
  }

  /** Write times as Catalyst's integers, and strings and binaries as bytes in base 64. */
  private def write(literal: Literal, values: ArrayNode): Unit = literal.value match {
    case null => values.addNull()
    case value: Boolean => values.add(value)
    case value: Byte => values.add(value.toInt)
    case value: Short => values.add(value.toInt)
    case value: Int => values.add(value)
    case value: Long => values.add(value)
    // JSON has neither infinity nor NaN.
    case value: Float => values.add(value.toDouble.toString)
    case value: Double => values.add(value.toString)
    case value: Decimal => values.add(value.toJavaBigDecimal.toString)
    case value: UTF8String => values.add(Base64.getEncoder.encodeToString(value.getBytes))
    case value: Array[Byte] => values.add(Base64.getEncoder.encodeToString(value))
  }
}
