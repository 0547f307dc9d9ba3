"""Deliveries, their outcomes, and the entries of a queue."""
