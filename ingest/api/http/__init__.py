"""The HTTP server, its requests and responses."""
