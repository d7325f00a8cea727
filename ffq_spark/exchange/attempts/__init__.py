"""List the map attempts on storage and decide which of them count."""
