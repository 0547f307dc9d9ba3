"""Examines a set-up before workers are started: Redis, PostgreSQL, the external API and the settings.

It leaves no data behind, needs no more rights than a worker, and gives advice for each error. `examine` runs all checks. The module of
each area turns facts (from `ingest.queue.operate.inspection`, `ingest.store.inspection` or `ingest.upstream.inspection`) into findings.
"""
