package io.ffq.spark

import java.util.{Collections, LinkedHashMap, Map => JMap}

/** Makes maps that keep the newest entries only, because a driver may run for months. */
private object Recent {

  private val MaxEntries = 10000

  def map[K, V](): JMap[K, V] = Collections.synchronizedMap(new LinkedHashMap[K, V] {
    override def removeEldestEntry(eldest: JMap.Entry[K, V]): Boolean = size() > MaxEntries
  })
}
