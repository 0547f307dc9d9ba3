"""`ingest bench backpressure`: the time and memory of several ways to keep a fixed number of asyncio calls in flight.

`ways` contains the ways, `trial` runs one of them in a separate process, and `compare` runs and reports all.
"""
