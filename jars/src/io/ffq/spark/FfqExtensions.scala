package io.ffq.spark

import java.security.SecureRandom

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.{SparkSession, SparkSessionExtensions}
import org.apache.spark.sql.catalyst.analysis.NamedRelation
import org.apache.spark.sql.catalyst.plans.logical.{AppendData, LogicalPlan, OverwriteByExpression, V2WriteCommand}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.execution.streaming.sources.WriteToMicroBatchDataSource
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** `spark.sql.extensions=io.ffq.spark.FfqExtensions`. */
class FfqExtensions extends (SparkSessionExtensions => Unit) {

  override def apply(extensions: SparkSessionExtensions): Unit = if (Settings.isAtHome) {
    extensions.injectPostHocResolutionRule(session => StampWrites(session))
    extensions.injectResolutionRule(_ => OwnPlans)
    extensions.injectPlannerStrategy(session => new ScanStrategy(session))
    extensions.injectColumnar(_ => DirectWrites)
  }
}

/**
 * Gives every write of an exchange its query number and its initiator before it runs, so that the
 * listener knows whose tasks it sees, and adds what the session's `spark.ffq.*` says of writes where
 * the write has no option of that name. Spark itself passes no conf to a Python source.
 */
private case class StampWrites(session: SparkSession) extends Rule[LogicalPlan] {

  override def apply(plan: LogicalPlan): LogicalPlan = plan match {
    // Spark wants the options in one place, or the same in both.
    case write: AppendData => stamped(write).map(write.copy(_, writeOptions = Map.empty)).getOrElse(write)
    case write: OverwriteByExpression =>
      stamped(write).map(write.copy(_, writeOptions = Map.empty)).getOrElse(write)
    case batch: WriteToMicroBatchDataSource if Write.isExchange(batch.relation) =>
      val options = new CaseInsensitiveStringMap(batch.writeOptions.asJava)
      if (options.containsKey(Write.Initiator)) batch
      else batch.copy(writeOptions = stamp(options).asScala.toMap)
    case other => other
  }

  private def stamped(write: V2WriteCommand): Option[DataSourceV2Relation] =
    Write.relation(write).filterNot(r => r.options.containsKey(Write.Initiator)).map { relation =>
      relation.copy(options = new CaseInsensitiveStringMap(stamp(relation.options)))
    }

  /** A write's options with the session's, and with who makes it. */
  private def stamp(options: CaseInsensitiveStringMap): java.util.Map[String, String] = {
    val context = session.sparkContext
    val own = Map(
      "query" -> QueryNumber.next().toString,
      Write.Initiator -> Settings.initiator(context.applicationId),
      "leaseSeconds" -> Settings.leaseSeconds(context.getConf).toString)
    val merged = new java.util.HashMap[String, String](options.asCaseSensitiveMap())
    (Settings.writeOptions(session.conf.getAll) ++ own).foreach {
      case (name, value) => if (!options.containsKey(name)) merged.put(name, value)
    }
    merged
  }
}

/** A write of an exchange as a logical plan knows it. */
private[spark] case class Write(root: String, query: Long, storage: Map[String, String])

private[spark] object Write {

  val Initiator = "initiator"

  /** The relation that a command writes to, if it is an exchange. */
  def relation(write: V2WriteCommand): Option[DataSourceV2Relation] = write.table match {
    case relation: DataSourceV2Relation if isExchange(relation) => Some(relation)
    case _ => None
  }

  def isExchange(relation: NamedRelation): Boolean = relation match {
    case known: DataSourceV2Relation => known.table.name() == Settings.Format
    case _ => false
  }

  /** The write in a plan, if there is one that the extension has stamped. */
  def in(plan: LogicalPlan): Option[Write] = plan.collectFirst {
    case write: V2WriteCommand => relation(write).map(_.options)
    case batch: WriteToMicroBatchDataSource if isExchange(batch.relation) =>
      Some(new CaseInsensitiveStringMap(batch.writeOptions.asJava))
  }.flatten.filter(_.containsKey(Initiator)).map { options =>
    val storage = options.asCaseSensitiveMap().asScala.filter(_._1.toLowerCase.startsWith("storage."))
    Write(options.getOrDefault("path", ""), options.get("query").toLong, storage.toMap)
  }
}

/** Query numbers as the Python side makes them: 42 bits of milliseconds, 21 random bits. */
private object QueryNumber {

  private val random = new SecureRandom

  def next(): Long = (System.currentTimeMillis() << 21) | random.nextInt(1 << 21)
}
