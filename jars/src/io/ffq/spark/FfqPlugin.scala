package io.ffq.spark

import java.util.{Collections, Map => JMap}

import org.apache.spark.SparkContext
import org.apache.spark.api.plugin.{DriverPlugin, ExecutorPlugin, PluginContext, SparkPlugin}

/**
 * The plugin, set as `spark.plugins=io.ffq.spark.FfqPlugin`.
 *
 * It adds the listener, the session extension, and the settings that make Python sources fast and
 * keep secrets out of plans. It does nothing on executors.
 */
class FfqPlugin extends SparkPlugin {

  override def driverPlugin(): DriverPlugin = new FfqDriverPlugin

  override def executorPlugin(): ExecutorPlugin = null
}

private class FfqDriverPlugin extends DriverPlugin {

  override def init(sc: SparkContext, context: PluginContext): JMap[String, String] = {
    if (Settings.isSupportedSpark) {
      Settings.installExtension(context.conf())
      Settings.installDefaults(context.conf())
      FfqListener.install(sc)
    }
    Collections.emptyMap()
  }

  override def shutdown(): Unit = Steward.stop()
}
