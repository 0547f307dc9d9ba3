"""The operations console, whose pages the server renders below `/console/`."""
