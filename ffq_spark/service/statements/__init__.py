"""Callers' SQL statements, run on the service's Spark session."""
