"""`ingest bench patterns`: usual ways to fetch ten thousand orders, compared with the service.

The programs, to be read as examples: `gather`, `semaphore`, `processes`, `threads`, `streams`; what all of them do with one
order is in `job`. The bench itself, in this order: `plan` (what is asked for), `contenders` (how each pattern is started, and
which of its processes is killed), `run` (one run), `compare` (all of them, and the report).
"""
