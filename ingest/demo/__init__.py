"""`ingest demo`: runs the whole service on one machine, from the first order to a checked result.

Read in this order: `plan` (what is asked for), `run` (what happens, in its order), `moment` and `view` (what is shown
meanwhile), `result` (what is counted at the end), `report` (what is printed about it).
"""
