"""The command `ffq-spark`."""
