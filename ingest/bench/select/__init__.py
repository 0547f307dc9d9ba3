"""`ingest bench select`: reading stored orders through an async pool, and in threads through a sync pool.

`server` is one process of the HTTP server, `readers` its ways to read, `pausing` its slow calls; `compare` runs and
reports them.
"""
