"""Remove, expire, verify and roll back what writes have left."""
