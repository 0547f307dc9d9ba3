"""A simulated external API that serves real orders over real HTTP, with the faults of real external APIs.

Read in this order: `behaviour` (the settings), `faults` (the fault for each request), `responses` (the bytes of
responses), `catalogue` (the documents), `credentials` (access), `connection` (HTTP on one socket), `control`
(the routes that change the behaviour at run time) and `server` (the composition). All state is in memory and is lost
when the process ends.
"""

from ingest.lab.upstream.behaviour import Behaviour
from ingest.lab.upstream.server import SimulatedApi
from ingest.lab.upstream.stats import StatsReport

__all__ = ["Behaviour", "SimulatedApi", "StatsReport"]
