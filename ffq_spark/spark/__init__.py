"""The Spark data source, its settings and types. Only this package imports pyspark."""
