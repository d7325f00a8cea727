"""Fetch, verify and decode the parts of a scan."""
