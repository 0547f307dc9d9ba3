"""`ingest bench patterns`: common ways to fetch ten thousand orders, compared with the service.

The programs `gather`, `semaphore`, `processes`, `threads` and `streams` are written to be read as examples. They share
the handling of one order in `job`. Read the bench itself in this order: `plan` (the options), `contenders` (the start
of each pattern, and the process to kill), `run` (one run) and `compare` (all runs and the report).
"""
