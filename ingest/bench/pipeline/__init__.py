"""`ingest bench pipeline`: the service as a user runs it, on real servers, against a simulated external API.

Read in this order: `plan` (what is asked for), `contenders`, `bare` and `go_build` (what is measured; the folder `go` has the bare
loop in Go), `load` (what announces the orders one by one), `session` (the runs, each the same) and `run` (its measured part),
`readings` and `outcome` (what is measured and found), `figures` (computed from that), `compare` (contenders, or the values of a
sweep), `tables`, `sweep` and `limits` (the tables, charts and notes of both).
"""
