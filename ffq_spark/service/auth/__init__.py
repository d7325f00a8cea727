"""Bearer tokens, and the access that they grant."""
