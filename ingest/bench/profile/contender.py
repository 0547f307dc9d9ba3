"""The service with a sampler in its worker processes."""

from functools import partial
from pathlib import Path

from ingest.bench.pipeline.contenders import Contend, Service
from ingest.bench.pipeline.plan import Plan
from ingest.bench.profile import injected
from ingest.bench.profile.injected.sitecustomize import VARIABLE
from ingest.bench.stage import Stage
from ingest.lab.simulated_api import RunningApi


class SampledService(Service):
    """`ingest worker`, whose processes write samples of themselves to a folder.

    Args:
        samples: the folder.
    """

    def __init__(self, samples: Path, stage: Stage, plan: Plan, api: RunningApi) -> None:
        super().__init__(stage, plan, api)
        self.environment = {"PYTHONPATH": injected.__path__[0], VARIABLE: str(samples)}


def sampled(samples: Path) -> Contend:
    """A contender of the pipeline bench that writes its samples to the folder."""
    return partial(SampledService, samples)
