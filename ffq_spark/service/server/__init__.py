"""The Flight server: reads, remote writes, actions, limits and metrics."""
