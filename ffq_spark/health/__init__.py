"""Checks of a Spark session's settings and of its machines, with the cost of each finding."""
