"""Compares reading stored orders through an async pool with reading them in threads through a sync pool.

`server` is one process of the HTTP server, `readers` its ways to read, `pausing` what a slow call does to it, `load` the
clients' process; `compare` puts them together.
"""
