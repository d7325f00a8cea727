"""All that imports pyspark: the data source, the session's settings, the types."""
