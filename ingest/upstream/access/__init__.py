"""Credentials of the external API."""
