package org.apache.spark.sql.execution.datasources.v2.python.ffq

import org.apache.spark.sql.execution.datasources.v2.python.{PythonDataSourceV2, UserDefinedPythonDataSource}

/** What Spark shows of a Python source to its own package only. */
object Internals {

  def source(shared: PythonDataSourceV2): UserDefinedPythonDataSource = shared.source
}
