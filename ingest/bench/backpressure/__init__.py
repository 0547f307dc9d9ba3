"""Compares ways to keep a fixed number of asyncio calls in flight: how long they take, and what they hold in memory.

`ways` has them, a file each; `trial` runs one of them in a process of its own; `compare` runs them all.
"""
