"""The measured comparisons: each bench runs real processes on real servers, and says on what machine.

All share one skeleton; read it in this order: `stage` (servers, API, commands), `contender` (the processes that are
measured), `trial` (one run after the other), `report` and `chart` (tables and pictures), `machine`. Each bench is a folder of
its own.
"""
