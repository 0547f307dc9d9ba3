"""The simulated external API: real orders over real HTTP, with every fault an external API has.

Read in this order: `behaviour` (what can be set), `faults` (what one request gets), `answers` (as which
bytes), `catalogue` (from which documents), `connection` (HTTP on one socket), `control` (the routes that
set all this at run time), `server` (the parts together). It keeps everything in memory and forgets it when
the process dies.
"""

from ingest.lab.upstream.behaviour import Behaviour
from ingest.lab.upstream.server import SimulatedApi
from ingest.lab.upstream.stats import StatsReport

__all__ = ["Behaviour", "SimulatedApi", "StatsReport"]
