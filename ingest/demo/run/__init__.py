"""`ingest demo`: the whole service on a bare machine, from the first order to a checked result.

Read in this order: `plan` (what is asked for), `play` (what happens, in its order), `commands` (the service's own
commands as processes), `gauges` and `memory` (what is measured), `moment` and `view` (what is seen meanwhile), `audit`
(what is counted at the end), `report` (what is said about it).
"""

from ingest.demo.run.errors import DemoFailed
from ingest.demo.run.plan import Plan
from ingest.demo.run.play import play
from ingest.demo.run.report import Report

__all__ = ["DemoFailed", "Plan", "Report", "play"]
