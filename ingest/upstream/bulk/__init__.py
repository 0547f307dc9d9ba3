"""Requests for several orders."""
