"""The simulated external API: real orders over real HTTP, with every fault that an external API can have.

Read in this order: `behaviour` (what can be set), `faults` (which fault a request gets), `answers` (the bytes of
answers), `catalogue` (the documents), `credentials` (who is let in), `connection` (HTTP on one socket), `control`
(the routes that change the behaviour at run time), `server` (the parts together). Everything is in memory and is lost
when the process ends.
"""

from ingest.lab.upstream.behaviour import Behaviour
from ingest.lab.upstream.server import SimulatedApi
from ingest.lab.upstream.stats import StatsReport

__all__ = ["Behaviour", "SimulatedApi", "StatsReport"]
