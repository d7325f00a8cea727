"""Decide which steps and parts a read sees, and cut them into tasks."""
