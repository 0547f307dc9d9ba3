"""Backfills: jobs that read the list of a shop for a period, and enqueue the orders that are missing or outdated."""
