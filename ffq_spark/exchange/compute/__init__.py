"""Computations on batches and numbers, without access to records."""
