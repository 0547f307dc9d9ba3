"""Isolation: how long orders of one source take while another source in the same processes fails in various ways.

`faults` has the failures, `compare` runs them one after the other, next to runs without the other source.
"""
