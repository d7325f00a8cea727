"""Turn batches into parts, and commit them as steps."""
