"""Whether a Spark session is set up well, and what it costs where it is not."""
