package io.ffq.spark

import java.io.File
import java.net.URI
import java.util.{Locale, Properties, UUID}

import scala.jdk.CollectionConverters._
import scala.util.Try

import io.ffq.spark.Shared.{ErrorCode, PluginSetting, Setting, Source}
import org.apache.spark.{SPARK_VERSION, SparkConf, SparkFiles}
import org.apache.spark.sql.internal.SQLConf

/** The settings of the plugin below `spark.ffq.`, and the identity of this application. */
private[spark] object Settings {

  private val Temporary = "-Djava\\.io\\.tmpdir=[\"']?([^\\s\"']+)".r

  /**
   * Whether this is the Spark version that the jar was built for. The plugin uses interfaces that
   * Spark may change; on other versions it does nothing, and the Python source works without it.
   */
  lazy val isSupportedSpark: Boolean = {
    val isSupported = SPARK_VERSION.startsWith(Setting.SparkLine)
    if (!isSupported) System.err.println(
      s"ffq_spark: the plugin is built for Spark ${Setting.SparkLine}x " +
        s"and does nothing on $SPARK_VERSION")
    isSupported
  }

  /** Whether a name is the source's. Spark ignores its case, and keeps the user's spelling. */
  def isFormat(name: String): Boolean = Source.Format.equalsIgnoreCase(name)

  /** Unique per driver process, because application ids may repeat. */
  val run: String = UUID.randomUUID().toString.take(8)

  def initiator(applicationId: String): String =
    s"$applicationId-$run".replaceAll("[^A-Za-z0-9._-]", "_")

  def leaseSeconds(conf: SparkConf): Int = {
    val name = Setting.Prefix + PluginSetting.LeaseSeconds
    parsed(name, conf.get(name, "30"), "a number of seconds")(_.toInt).max(1)
  }

  /** Parse the value of a setting, or raise an error that names both. */
  private def parsed[T](name: String, value: String, wanted: String)(parse: String => T): T =
    try parse(value) catch {
      case _: IllegalArgumentException => throw new IllegalArgumentException(
        s"[${ErrorCode.BadOption}] $name must be $wanted, not '$value'")
    }

  /** Add the extension to the conf. Spark makes sessions from it after it has started plugins. */
  def installExtension(conf: SparkConf): Unit = {
    val own = classOf[FfqExtensions].getName
    val names = conf.get(Setting.Extensions, "").split(",").map(_.trim).filter(_.nonEmpty)
    if (!names.contains(own)) conf.set(Setting.Extensions, (names :+ own).mkString(","))
  }

  /**
   * Set the defaults that make Python sources fast and keep secrets out of plans, where the user
   * has not set them. Sessions, executors and PySpark's side of the sockets copy this conf after
   * Spark has started plugins.
   */
  def installDefaults(conf: SparkConf): Unit = {
    val skipsSockets = sys.env.contains(Setting.SocketsVariable) || socketsFail(conf)
    defaults.foreach { case (name, value) =>
      if (name != Setting.Sockets || !skipsSockets) conf.setIfMissing(name, value)
    }
  }

  /** The defaults that `ffq_spark/conf.py` declares. */
  private lazy val defaults: Map[String, String] = properties("defaults.properties")

  /** Names below the prefix that Python declares, in lower case; write options map to `write`. */
  private lazy val declared: Map[String, String] =
    properties("options.properties").map { case (name, use) =>
      name.toLowerCase(Locale.ROOT) -> use
    }

  /** Read a properties file that jars/build.py put into the jar. */
  private def properties(name: String): Map[String, String] = {
    val stream = getClass.getResourceAsStream(name)
    val loaded = new Properties
    try loaded.load(stream) finally stream.close()
    loaded.asScala.toMap
  }

  /** Whether the path of a Unix socket is too long or unknown, so that Python tasks would fail. */
  private def socketsFail(conf: SparkConf): Boolean = {
    val isWindows = File.separatorChar == '\\'
    val isYarn = conf.get("spark.master", "").startsWith("yarn")
    isWindows || !conf.contains(Setting.SocketDir) &&
      (isYarn || temporaryFolders(conf).exists(_.length > Setting.SocketDirLength))
  }

  private def temporaryFolders(conf: SparkConf): Seq[String] =
    System.getProperty("java.io.tmpdir") +:
      conf.getAll.toSeq.filter(_._1.endsWith(Setting.JavaOptions)).flatMap { case (_, options) =>
        Temporary.findFirstMatchIn(options).map(_.group(1))
      }

  /** The Python interpreter for the steward: `spark.ffq.python`, else Spark's. */
  def python(conf: SparkConf): String =
    conf.getOption(Setting.Prefix + PluginSetting.Python)
      .orElse(conf.getOption("spark.pyspark.driver.python"))
      .orElse(conf.getOption("spark.pyspark.python"))
      .orElse(sys.env.get("PYSPARK_DRIVER_PYTHON"))
      .orElse(sys.env.get("PYSPARK_PYTHON"))
      .getOrElse("python3")

  /**
   * The files of `--py-files`, which may hold the package. Spark adds them to the paths of the
   * driver's Python and of workers, but not to that of a process which this JVM starts.
   */
  def pythonPath(conf: SparkConf): Seq[String] =
    conf.get("spark.submit.pyFiles", "").split(",").toSeq.filter(_.nonEmpty).flatMap { file =>
      val path = Try(new URI(file)).toOption.flatMap(uri => Option(uri.getPath)).getOrElse(file)
      // PySpark copies the files of remote file systems to a directory of the driver.
      val copied = Try(SparkFiles.get(new File(path).getName)).toOption
      (Seq(file, path) ++ copied).filter(new File(_).exists()).take(1)
    }

  /** Whether the session lets scans report their partitioning and answer aggregates. */
  def isPlannerEnabled(): Boolean = {
    val name = Setting.Prefix + PluginSetting.PlannerEnabled
    parsed(name, SQLConf.get.getConfString(name, "true"), "true or false")(_.toBoolean)
  }

  /**
   * The options that a write takes from the session's settings.
   *
   * Settings for reads and for the plugin are left out, and so are options that only a call can
   * set. An undeclared setting keeps its full name, so that Python refuses it; its value is left
   * out because it may be a secret.
   */
  def writeOptions(all: Iterable[(String, String)]): Map[String, String] =
    all.flatMap { case (setting, value) =>
      if (setting.startsWith(Setting.Prefix)) writeOption(setting, value) else None
    }.toMap

  private def writeOption(setting: String, value: String): Option[(String, String)] = {
    val name = setting.stripPrefix(Setting.Prefix)
    val lower = name.toLowerCase(Locale.ROOT)
    if (lower.startsWith(Setting.Storage)) Some(name -> value)
    else declared.get(lower) match {
      case Some("write") => Some(name -> value)
      case Some(_) => None
      case None => Some(setting -> "")
    }
  }
}
