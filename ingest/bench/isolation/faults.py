"""The failures of source A."""

from collections.abc import Mapping
from dataclasses import dataclass, field

# Requires a field that no document contains.
_MAPPING = """
[order]
id = "id"
status = "no.such.field"
placed_at = "placed_at"
currency = "currency"

[[lines]]
from = "lines"
sku = "sku"
quantity = "quantity"
unit_price = "unit_price"
"""
_CODE = """
import os
import signal
import time


def kill(order, document):
    os.kill(os.getpid(), signal.SIGKILL)


def burn(order, document):
    ends_at = time.monotonic() + 0.5
    while time.monotonic() < ends_at:
        pass
    return order
"""
FILES = {"broken.toml": _MAPPING, "bench_isolation_code.py": _CODE}
"""Further files, next to the sources file."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A failure of source A.

    Attributes:
        title: for the table.
        behaviour: of its simulated API.
        section: further lines of its section in the sources file.
        orders: how many of its orders are queued at the start.
        is_refused: whether nothing listens on its address.
    """

    title: str
    behaviour: Mapping[str, object] = field(default_factory=dict)
    section: str = ""
    orders: int = 2_000
    is_refused: bool = False


def _section(function: str) -> str:
    return f'transform = "bench_isolation_code:{function}"\ntransform_processes = 1'


FAULTS = {
    "alone": Fault("has no orders", orders=0),
    "hang": Fault("hangs: no response to any request", {"hang_rate": 1.0}),
    "refused": Fault("refuses connections", is_refused=True),
    "401": Fault("responds 401", {"token": "another"}),
    "429": Fault("responds 429 with Retry-After: 3600", {"rate_limit": 0.001, "rate_burst": 1, "retry_after": 3600}),
    "backlog": Fault("has {orders} queued orders", {"latency": "0.1-0.2"}, orders=100_000),
    "fast": Fault(
        "has {orders} queued orders at an API that responds within 2 ms", {"latency": "0-0.002"}, orders=100_000
    ),
    "poison": Fault("has orders that kill their transform process", section=_section("kill")),
    "mapping": Fault("has a mapping that fails for every order", section='mapping = "broken.toml"'),
    "cpu": Fault("has a transform that uses 0.5 s of CPU", section=_section("burn")),
}
"""By the name that `--fault` takes. `alone` is measured first and last."""
