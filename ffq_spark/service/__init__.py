"""The exchange service: Arrow Flight for everyone who is not Spark."""
