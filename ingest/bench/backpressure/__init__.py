"""`ingest bench backpressure`: ways to keep a fixed number of asyncio calls in flight, their time and their memory.

`ways` has them; `trial` runs one of them in a process of its own; `compare` runs and reports them all.
"""
