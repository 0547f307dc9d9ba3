"""`ingest bench pipeline`: the service as a user runs it, on real servers, with a simulated external API.

Read in this order: `plan` (the options), `contenders`, `bare` and `go_build` (the measured programs, with the bare loop
in Go in the folder `go`), `load` (announces orders at a rate), `session` (the runs) and `run` (the measured part of a
run), `readings` and `outcome` (the raw results), `figures` (computed results), `compare` (contenders, or the values of
a sweep), `tables`, `sweep` and `limits` (the tables, charts and notes).
"""
