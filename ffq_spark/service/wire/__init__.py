"""Messages and statuses that the client and the server exchange."""
