"""The bytes and paths of files on storage. This package does no I/O."""
