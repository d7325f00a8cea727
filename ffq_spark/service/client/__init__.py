"""The client that `ffq.connect` returns."""
