"""Verify exchanges, roll them back, and delete what their writers have left."""
