"""The operations console: pages rendered by the server, below `/console/`."""
