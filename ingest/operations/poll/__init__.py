"""Polling: reads the list of orders of a source for changes that no webhook has announced."""
