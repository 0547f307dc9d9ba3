"""Requests to the external API, and its responses."""
