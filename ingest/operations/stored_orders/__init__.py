"""Finds, lists and erases orders."""
