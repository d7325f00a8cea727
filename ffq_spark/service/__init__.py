"""The exchange service: serve exchanges over Arrow Flight, and use them without Spark."""
