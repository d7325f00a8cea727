package io.ffq.spark

import java.util.{Collections, LinkedHashMap, Map => JMap}

/** A map of the newest entries: a driver may run for months, and late events are worth little. */
private object Recent {

  private val Most = 10000

  def map[K, V](): JMap[K, V] = Collections.synchronizedMap(new LinkedHashMap[K, V] {
    override def removeEldestEntry(eldest: JMap.Entry[K, V]): Boolean = size() > Most
  })
}
