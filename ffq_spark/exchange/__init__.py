"""The exchange itself, with neither Spark nor Java: log, ledger, writer, reader, planner."""
