package io.ffq.spark

import java.security.SecureRandom

import scala.jdk.CollectionConverters._

import io.ffq.spark.Shared.{QueryNumber, Setting, Source}
import org.apache.spark.sql.{SparkSession, SparkSessionExtensions}
import org.apache.spark.sql.catalyst.analysis.NamedRelation
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.execution.streaming.sources.WriteToMicroBatchDataSource
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** The session extension, set as `spark.sql.extensions=io.ffq.spark.FfqExtensions`. */
class FfqExtensions extends (SparkSessionExtensions => Unit) {

  override def apply(extensions: SparkSessionExtensions): Unit = if (Settings.isSupportedSpark) {
    extensions.injectPostHocResolutionRule(session => StampWrites(session))
    extensions.injectResolutionRule(_ => OwnPlans)
    extensions.injectPreCBORule(_ => LiteralCounts)
    extensions.injectPlannerStrategy(session => new ScanStrategy(session))
    extensions.injectColumnar(_ => DirectWrites)
  }
}

/**
 * Adds the query number and the initiator to the options of every write of an exchange.
 *
 * The listener finds a write's tasks by them. The rule also adds the session's `spark.ffq.*`
 * settings for writes, where the write has no option of that name: Spark passes no conf to a
 * Python source.
 */
private case class StampWrites(session: SparkSession) extends Rule[LogicalPlan] {

  override def apply(plan: LogicalPlan): LogicalPlan = plan match {
    // Spark refuses options that differ between the command and its relation.
    case write: AppendData =>
      stamped(write).map(write.copy(_, writeOptions = Map.empty)).getOrElse(write)
    case write: OverwriteByExpression =>
      stamped(write).map(write.copy(_, writeOptions = Map.empty)).getOrElse(write)
    case batch: WriteToMicroBatchDataSource if Write.isExchange(batch.relation) =>
      val options = new CaseInsensitiveStringMap(batch.writeOptions.asJava)
      if (options.containsKey(Source.Initiator)) batch
      else batch.copy(writeOptions = stamp(options).asScala.toMap)
    case other => other
  }

  private def stamped(write: V2WriteCommand): Option[DataSourceV2Relation] =
    Write.relation(write).filterNot(_.options.containsKey(Source.Initiator)).map { relation =>
      relation.copy(options = new CaseInsensitiveStringMap(stamp(relation.options)))
    }

  /** Add the session's settings, a query number and the initiator to a write's options. */
  private def stamp(options: CaseInsensitiveStringMap): java.util.Map[String, String] = {
    val context = session.sparkContext
    val own = Map(
      Source.Query -> QueryNumbers.next().toString,
      Source.Initiator -> Settings.initiator(context.applicationId),
      Source.LeaseSeconds -> Steward.leaseSeconds(context.getConf).toString)
    val merged = new java.util.HashMap[String, String](options.asCaseSensitiveMap())
    (Settings.writeOptions(session.conf.getAll) ++ own).foreach {
      case (name, value) => if (!options.containsKey(name)) merged.put(name, value)
    }
    merged
  }
}

/** A write of an exchange, as described by its options in a logical plan. */
private[spark] case class Write(root: String, query: Long, storage: Map[String, String])

private[spark] object Write {

  /** The relation to which a command writes, if it is an exchange. */
  def relation(write: V2WriteCommand): Option[DataSourceV2Relation] = write.table match {
    case relation: DataSourceV2Relation if isExchange(relation) => Some(relation)
    case _ => None
  }

  def isExchange(relation: NamedRelation): Boolean = relation match {
    case known: DataSourceV2Relation => Settings.isFormat(known.table.name())
    case _ => false
  }

  /** The write in a plan, if it has one with the options that [[StampWrites]] adds. */
  def in(plan: LogicalPlan): Option[Write] = plan.collectFirst {
    case write: V2WriteCommand => relation(write).map(_.options)
    case batch: WriteToMicroBatchDataSource if isExchange(batch.relation) =>
      Some(new CaseInsensitiveStringMap(batch.writeOptions.asJava))
  }.flatten.filter(_.containsKey(Source.Initiator)).map { options =>
    val storage = options.asCaseSensitiveMap().asScala.filter { case (name, _) =>
      name.toLowerCase.startsWith(Setting.Storage)
    }
    Write(options.getOrDefault(Source.Path, ""), options.get(Source.Query).toLong, storage.toMap)
  }
}

/** Makes query numbers as Python does: milliseconds, and below them random bits. */
private object QueryNumbers {

  private val random = new SecureRandom

  def next(): Long =
    (System.currentTimeMillis() << QueryNumber.RandomBits) |
      random.nextInt(1 << QueryNumber.RandomBits)
}
