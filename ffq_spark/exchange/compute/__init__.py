"""Work on batches and numbers alone: no record is read or written."""
