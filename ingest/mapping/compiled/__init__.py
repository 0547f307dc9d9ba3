"""Compiles mappings."""
