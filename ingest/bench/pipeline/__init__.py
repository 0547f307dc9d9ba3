"""`ingest bench pipeline`: the service as a user runs it, on real servers, against a simulated external API.

Read in this order: `plan` (what is asked for), `contender` and `bare` (who does it), `load` (who announces the orders), `run`
(what happens, the same for each contender), `gauges` and `findings` (what is read off), `figures` (what is made of it), `session` (many
runs, and the report), `sweep` (one run for each value of an option), `charts`.
"""
