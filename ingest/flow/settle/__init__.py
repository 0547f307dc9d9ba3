"""Applies outcomes: stores rows in batches, acks entries and moves them."""
