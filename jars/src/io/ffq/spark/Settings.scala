package io.ffq.spark

import java.util.UUID

import org.apache.spark.{SPARK_VERSION, SparkConf}

/** What the bridge reads from `spark.ffq.*`, and who this application is. */
private[spark] object Settings {

  private val BuiltFor = "4.3."
  val Format = "ffqshuffle"
  val Prefix = "spark.ffq."
  private val Extensions = "spark.sql.extensions"

  /**
   * Whether this is the Spark that the jar was built for. The bridge uses what Spark does not
   * promise to keep; elsewhere it stays away, and all that Python does goes on without it.
   */
  lazy val isAtHome: Boolean = {
    val home = SPARK_VERSION.startsWith(BuiltFor)
    if (!home) System.err.println(
      s"ffq_spark: the plugin is built for Spark ${BuiltFor}x and does nothing on $SPARK_VERSION")
    home
  }

  /** Unique for each driver process, also where application ids repeat. */
  val run: String = UUID.randomUUID().toString.take(8)

  def initiator(applicationId: String): String =
    s"$applicationId-$run".replaceAll("[^A-Za-z0-9._-]", "_")

  def leaseSeconds(conf: SparkConf): Int = conf.getInt(Prefix + "lease.seconds", 30).max(1)

  /** Sessions are made after plugins, from this very conf. */
  def installExtension(conf: SparkConf): Unit = {
    val own = classOf[FfqExtensions].getName
    val there = conf.get(Extensions, "").split(",").map(_.trim).filter(_.nonEmpty)
    if (!there.contains(own)) conf.set(Extensions, (there :+ own).mkString(","))
  }

  /** The interpreter for the steward: its own setting, else Spark's. */
  def python(conf: SparkConf): String =
    conf.getOption(Prefix + "python")
      .orElse(conf.getOption("spark.pyspark.driver.python"))
      .orElse(conf.getOption("spark.pyspark.python"))
      .orElse(sys.env.get("PYSPARK_DRIVER_PYTHON"))
      .orElse(sys.env.get("PYSPARK_PYTHON"))
      .getOrElse("python3")

  /** `spark.ffq.<name>` settings that are not the bridge's own, as options. */
  def options(all: Iterable[(String, String)]): Map[String, String] =
    all.collect {
      case (name, value) if name.startsWith(Prefix) && !isBridge(name) =>
        name.stripPrefix(Prefix) -> value
    }.toMap

  private def isBridge(name: String): Boolean =
    name == Prefix + "python" || Seq("lease.", "cleanup.").exists(p => name.startsWith(Prefix + p))
}
