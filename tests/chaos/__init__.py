"""The chaos run: the real commands on real servers, while everything that may fail fails, and an account at the end.

Read in this order: `plan` (which faults, when: pure, from a seed), `stage` (servers, proxies and commands), `faults` (how each
fault is done), `producer` (announces orders, and remembers what was accepted), `check` (the account), `run` (all of it in
its order), `report` (what is said about it). `python -m chaos --help` shows the options; the folder is found with
PYTHONPATH=tests.
"""
