"""`ingest bench select`: reads stored orders through an async pool, and in threads through a sync pool.

`server` is one process of the HTTP server, `readers` contains its ways to read and `pausing` its slow calls. `compare`
runs and reports them.
"""
