"""`ingest demo` runs the whole service on one machine, from the first order to a checked result.

Read in this order: `plan` (the options), `run` (the steps, in sequence), `moment` and `view` (the progress display),
`result` (the counts at the end) and `report` (the printed summary).
"""
