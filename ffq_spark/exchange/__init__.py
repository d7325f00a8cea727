"""Exchanges, without Spark or Java: their step log, commits, writes, reads and maintenance."""
