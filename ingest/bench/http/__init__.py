"""`ingest bench http`: `ingest api` under many connections, beside a handler that only answers, run directly and by gunicorn.

`operations` is what the clients send, `servers` what answers them, `bare` the handler that only answers; `compare` runs and
reports them.
"""
