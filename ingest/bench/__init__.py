"""Measured comparisons, which run real processes on real servers and report the machine.

All benches share the same structure. Read it in this order: `stage` (servers, API, commands), `contender` (the measured
processes), `trial` (a sequence of runs), `report` and `panels` (tables and charts as data), `chart` (drawing) and
`machine`. Each folder is a bench and returns `Findings`.
"""
