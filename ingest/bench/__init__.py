"""The measured comparisons: each bench runs real processes on real servers, and says on what machine.

`report`, `chart`, `machine` and `usage` are shared; each bench is a folder of its own.
"""
