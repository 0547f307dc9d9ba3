"""A source: one shop, marketplace or carrier account, with its configuration."""

from typing import TYPE_CHECKING

import msgspec

from ingest.domain.fetch.quota import QuotaLimits
from ingest.domain.operating.controls import Tuning
from ingest.domain.source_name import UNNAMED
from ingest.upstream.access.endpoint import Endpoint
from ingest.upstream.bulk.bulk import BulkOptions
from ingest.upstream.http.transport import UpstreamLimits

if TYPE_CHECKING:
    from ingest.mapping.compiled.mapping import CompiledMapping
    from ingest.upstream.lists.order_list import ListOptions


class TransformOptions(msgspec.Struct, frozen=True):
    """A transform, and how it runs.

    Attributes:
        function: `package.module:function`.
        processes: transform processes for each worker process. 0 runs it in the event loop.
        timeout: seconds of one call.
        memory: bytes that a transform process may use. 0 for no limit.
    """

    function: str
    processes: int
    timeout: float
    memory: int


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The values that belong to one source. Its parts are opened by `opening` and `documents`.

    Attributes:
        name: empty for the only source of a deployment without a sources file.
        endpoint: the external API, with the credential.
        limits: of one request and its response.
        quota_name: the quota that processes share.
        quota: limits over all processes.
        is_adaptive: whether the number of requests in flight follows the API's capacity.
        concurrency: orders in flight in each process.
        body_limit: bytes of one order document.
        bulk: how orders are requested together. None for one request per order.
        mapping: from the API's documents to orders. None if they are orders already.
        transform: called for each order, or None.
        keeps_documents: whether the raw document is stored with each order.
        results_age: seconds for which results are kept. 0 if none are written.
        order_list: how its list of orders is read. None without a list.
        poll: seconds between two readings of the list for changed orders. None if it is not polled.
    """

    name: str = UNNAMED
    endpoint: Endpoint
    limits: UpstreamLimits
    quota_name: str
    quota: QuotaLimits
    is_adaptive: bool
    concurrency: int
    body_limit: int
    bulk: BulkOptions | None
    mapping: "CompiledMapping | None"
    transform: TransformOptions | None
    keeps_documents: bool
    results_age: float
    order_list: "ListOptions | None" = None
    poll: float | None = None

    @property
    def orders_per_request(self) -> int:
        """For how many orders one request is sent, at most."""
        return 1 if self.bulk is None else self.bulk.size

    @property
    def requests(self) -> int:
        """How many concurrent requests are useful: as many as all orders in flight fill."""
        return self.concurrency if self.bulk is None else self.bulk.requests

    def tuned(self, tuning: Tuning | None) -> "Source":
        """Return this source with the limits that an operator has changed while it runs."""
        if tuning is None:
            return self
        concurrency = self.concurrency if tuning.concurrency is None else tuning.concurrency
        quota = self.quota if tuning.rate is None else self.quota.with_rate(tuning.rate)
        bulk = self.bulk
        if bulk is not None:
            size = min(bulk.size, concurrency)
            bulk = msgspec.structs.replace(bulk, size=size, requests=-(-concurrency // size))
        return msgspec.structs.replace(self, concurrency=concurrency, quota=quota, bulk=bulk)

    @property
    def for_list(self) -> "Source":
        """This source with the quota of its list, if the API counts requests for the list separately."""
        if self.order_list is None or self.order_list.quota is None:
            return self
        return msgspec.structs.replace(self, quota_name=f"{self.quota_name}:list", quota=self.order_list.quota)

    @property
    def has_quota(self) -> bool:
        """Whether requests are limited over all processes."""
        return bool(self.quota.rate or self.quota.concurrency)
