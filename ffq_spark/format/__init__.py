"""Pure bytes and names: nothing in this package does I/O."""
