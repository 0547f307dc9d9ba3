"""The measured comparisons: each bench runs real processes on real servers, and says on what machine.

All share one skeleton; read it in this order: `stage` (servers, API, commands), `contender` (the processes that are
measured), `trial` (one run after the other), `report` and `panels` (tables and charts, declared as data), `chart` (draws
them), `machine`. Each bench is a folder of its own, which gives `Findings`.
"""
