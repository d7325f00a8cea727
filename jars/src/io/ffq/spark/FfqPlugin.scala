package io.ffq.spark

import java.util.{Collections, Map => JMap}

import org.apache.spark.SparkContext
import org.apache.spark.api.plugin.{DriverPlugin, ExecutorPlugin, PluginContext, SparkPlugin}

/**
 * `spark.plugins=io.ffq.spark.FfqPlugin`: the bridge from conf alone. It adds the listener,
 * the extension that stamps writes with who makes them, and the settings that make Python sources
 * fast and keep secrets out of plans; executors need nothing.
 */
class FfqPlugin extends SparkPlugin {

  override def driverPlugin(): DriverPlugin = new FfqDriverPlugin

  override def executorPlugin(): ExecutorPlugin = null
}

private class FfqDriverPlugin extends DriverPlugin {

  override def init(sc: SparkContext, context: PluginContext): JMap[String, String] = {
    if (Settings.isAtHome) {
      Settings.installExtension(context.conf())
      Settings.installDefaults(context.conf())
      FfqListener.install(sc)
    }
    Collections.emptyMap()
  }

  override def shutdown(): Unit = Steward.stop()
}
