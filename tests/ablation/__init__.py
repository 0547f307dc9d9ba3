"""Removes each safeguard of the guarantees alone, and expects its tests to notice."""
