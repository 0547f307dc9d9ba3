"""The client of the HTTP API, for programs in Python.

Data: call -> `client` -> `calls` (again, until the deadline) -> `connection` (HTTP) -> `responses` -> result or error.
"""
