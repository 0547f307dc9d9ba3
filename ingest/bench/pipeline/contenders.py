"""The contenders of the pipeline bench, which are the service's own command and the bare loops in Python and in Go."""

from collections.abc import Callable, Mapping
from functools import partial

from ingest.bench.contender import Contender, ServiceContender
from ingest.bench.pipeline.bare import GROUP as BARE_GROUP
from ingest.bench.pipeline.bare import UPSERT
from ingest.bench.pipeline.go_build import built_program
from ingest.bench.pipeline.plan import BARE, GO, GO_JSON, SERVICE, Plan
from ingest.bench.stage import Stage
from ingest.lab.simulated_api import RunningApi
from ingest.queue.layout.keys import DEFAULT_GROUP


class Service(ServiceContender):
    """`ingest worker` in one or two commands.

    Attributes:
        group: its consumer group.
        consumers: number of consumers when all are ready.
    """

    group = DEFAULT_GROUP

    def __init__(self, stage: Stage, plan: Plan, api: RunningApi) -> None:
        settings = {**plan.worker_settings(), **_bulk(plan, api.url)}
        super().__init__(stage, api.url, settings, plan.commands, ca_file=api.ca_file)
        self.consumers = plan.processes


class Bare(Contender):
    """The bare loop in one process, with the attributes of `Service`."""

    group = BARE_GROUP
    consumers = 1

    def __init__(self, stage: Stage, plan: Plan, api: RunningApi) -> None:
        super().__init__(stage, api.url, api.ca_file)
        self._in_flight = plan.in_flight

    def start(self) -> None:
        """Start it."""
        self._start_program("ingest.bench.pipeline.bare", self._stage.keys().stream, str(self._in_flight))


class BareGo(Contender):
    """The bare loop in Go in one process, with the attributes of `Service`."""

    group = "go"
    consumers = 1

    def __init__(self, stage: Stage, plan: Plan, api: RunningApi, codec: str = "") -> None:
        """The JSON decoder is `codec`, or the one of the standard library."""
        super().__init__(stage, api.url, api.ca_file)
        self._in_flight, self._codec = plan.in_flight, codec

    def start(self) -> None:
        """Start it."""
        environment = {"BENCH_UPSERT": UPSERT, "BENCH_JSON": self._codec}
        self._start_executable(built_program(), self._stage.keys().stream, str(self._in_flight), **environment)


PipelineContender = Service | Bare | BareGo
Contend = Callable[[Stage, Plan, RunningApi], PipelineContender]
"""Makes a contender."""

# go-json decodes a document in about 33 % of the standard library's time.
CONTENDERS: Mapping[str, Contend] = {
    SERVICE: Service, BARE: Bare, GO: BareGo, GO_JSON: partial(BareGo, codec="go-json")
}  # fmt: skip


def _bulk(plan: Plan, api_url: str) -> dict[str, str]:
    if not plan.bulk:
        return {}
    list_url = api_url.replace("/{order_id}", "?ids={order_ids}")
    return {"INGEST_UPSTREAM_BULK_URL": list_url, "INGEST_UPSTREAM_BULK_SIZE": str(plan.bulk)}
