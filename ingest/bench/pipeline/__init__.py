"""`ingest bench pipeline`: the service as a user runs it, on real servers, against a simulated external API.

Read in this order: `plan` (what is asked for), `contenders` and `bare` (what is measured), `load` (what announces the orders),
`run` (one run, the same for each contender), `readings` and `outcome` (what is measured and found), `figures` (computed from
that), `session` (many runs, and the report), `sweep` (one run for each value of an option), `tables`, `charts`, `curve`.
"""
