"""Composition roots: a module for each process, and the parts of a worker."""
