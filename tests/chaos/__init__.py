"""The chaos run: the real commands on real servers under random faults, with a reconciliation at the end.

Read in this order: `plan` (the faults and their times, drawn from a seed), `redis_side` (how Redis runs), `stage` (servers,
proxies and commands), `faults` (the actions), `producer` (announces orders and records accepted ones), `written` (names the
entries that failovers lose), `check` (the reconciliation), `run` (the sequence of a run) and `report` (the printed report).
`python -m chaos --help` shows the options and needs PYTHONPATH=tests.
"""
