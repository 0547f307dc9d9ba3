"""Rebuilds stored orders: by another fetch, or by another mapping of the stored document."""
