"""Processes a delivery: fetches its order, and decides its outcome."""
