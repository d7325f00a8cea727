package io.ffq.spark

import java.util.{Locale, Properties, UUID}

import scala.jdk.CollectionConverters._

import org.apache.spark.{SPARK_VERSION, SparkConf}
import org.apache.spark.sql.internal.SQLConf

/** What the bridge reads from `spark.ffq.*`, and who this application is. */
private[spark] object Settings {

  private val BuiltFor = "4.3."
  val Format = "ffqshuffle"
  val Prefix = "spark.ffq."
  private val Extensions = "spark.sql.extensions"
  private val Sockets = "spark.python.unix.domain.socket.enabled"
  private val SocketDir = "spark.python.unix.domain.socket.dir"
  // A socket's path has at most 104 characters, and Spark's file name takes 43 of them.
  private val SocketDirLength = 61
  private val Temporary = "-Djava\\.io\\.tmpdir=[\"']?([^\\s\"']+)".r

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

  /**
   * What makes Python sources fast and keeps secrets out of plans, where the user has not decided.
   * The sessions, the executors and PySpark's own side of the sockets take their conf from this one,
   * and all come after plugins.
   */
  def installDefaults(conf: SparkConf): Unit = {
    val refused = if (sys.env.contains("PYSPARK_UDS_MODE") || socketsFail(conf)) Set(Sockets) else Set.empty[String]
    defaults.foreach { case (name, value) => if (!refused(name)) conf.setIfMissing(name, value) }
  }

  /** The declaration in `ffq_spark/conf.py`. */
  private lazy val defaults: Map[String, String] = properties("defaults.properties")

  /** Every name below the prefix that Python declares, in lower case; `write` for options of writes. */
  private lazy val declared: Map[String, String] =
    properties("options.properties").map { case (name, use) => name.toLowerCase(Locale.ROOT) -> use }

  /** Properties that were put into the jar when it was built. */
  private def properties(name: String): Map[String, String] = {
    val stream = getClass.getResourceAsStream(name)
    val found = new Properties
    try found.load(stream) finally stream.close()
    found.asScala.toMap
  }

  /** Where the path of a Unix socket would be too long, or unknown, every Python task would fail. */
  private def socketsFail(conf: SparkConf): Boolean =
    java.io.File.separatorChar == '\\' || !conf.contains(SocketDir) && (
      conf.get("spark.master", "").startsWith("yarn") || temporaries(conf).exists(_.length > SocketDirLength))

  private def temporaries(conf: SparkConf): Seq[String] =
    System.getProperty("java.io.tmpdir") +:
      conf.getAll.toSeq.filter(_._1.endsWith("JavaOptions")).flatMap { case (_, options) =>
        Temporary.findFirstMatchIn(options).map(_.group(1))
      }

  /** The interpreter for the steward: its own setting, else Spark's. */
  def python(conf: SparkConf): String =
    conf.getOption(Prefix + "python")
      .orElse(conf.getOption("spark.pyspark.driver.python"))
      .orElse(conf.getOption("spark.pyspark.python"))
      .orElse(sys.env.get("PYSPARK_DRIVER_PYTHON"))
      .orElse(sys.env.get("PYSPARK_PYTHON"))
      .getOrElse("python3")

  /** Whether the session lets scans tell Spark how their rows are partitioned, and answer counts. */
  def plansLayouts(): Boolean = SQLConf.get.getConfString(Prefix + "planner.enabled", "true").toBoolean

  /**
   * The options that a write takes from the session's settings. Settings for reads, for the plugin and those
   * that only a call can give are left out. A name that nothing declares stays whole: Python refuses it.
   * Its value, which may be a secret, stays away.
   */
  def writeOptions(all: Iterable[(String, String)]): Map[String, String] =
    all.collect { case (setting, value) if setting.startsWith(Prefix) =>
      val name = setting.stripPrefix(Prefix)
      val lower = name.toLowerCase(Locale.ROOT)
      if (lower.startsWith("storage.")) Some(name -> value)
      else declared.get(lower) match {
        case Some("write") => Some(name -> value)
        case Some(_) => None
        case None => Some(setting -> "")
      }
    }.flatten.toMap
}
