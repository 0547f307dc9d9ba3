"""`ingest bench http`: `ingest api` under many connections, compared with a minimal handler, with and without gunicorn.

`operations` contains the requests, `servers` the measured servers and `bare` the minimal handler. `compare` runs and
reports all.
"""
