"""Pauses sources, drains processes, and changes limits while workers run."""
