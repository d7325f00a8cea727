"""The command line `ffq-spark`, one module per group of verbs."""
