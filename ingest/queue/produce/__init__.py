"""Enqueues orders."""
