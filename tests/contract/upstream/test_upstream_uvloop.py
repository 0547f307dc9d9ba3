"""The transports on the event loop of the service, whose timers differ from asyncio's."""

import asyncio
from collections import Counter
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import msgspec
import pytest
import uvloop
from fakes.upstream import delivered
from raw_http import LIMITS, ORDER, Connect

from ingest.domain.errors import TransientFault
from ingest.domain.fetch.exchange import FetchRequest
from ingest.lab.upstream import Behaviour, SimulatedApi

pytestmark = pytest.mark.each_client

REQUESTS = 6_000
AT_ONCE = 100


def run(main: Coroutine[Any, Any, Counter[str]]) -> Counter[str]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.get_loop().set_exception_handler(lambda _, context: complaints.append(str(context)))
        complaints: list[str] = []
        ended = runner.run(main)
    assert complaints == []
    return ended


@pytest.mark.filterwarnings("error")
def test_requests_that_hang_do_not_affect_others(loaded_api: SimulatedApi, connect: Connect) -> None:
    hanging = msgspec.structs.replace(Behaviour(), latency="0-0.004", hang_rate=0.03)

    async def main() -> Counter[str]:
        loaded_api.behave(**msgspec.structs.asdict(hanging))
        ended: Counter[str] = Counter()
        left = iter(range(REQUESTS))

        async def one_after_the_other() -> None:
            for _ in left:
                try:
                    await delivered(client.fetch(FetchRequest(ORDER)))
                    ended["answered"] += 1
                except TransientFault as fault:
                    ended[str(fault).partition(" (")[0]] += 1

        async with loaded_api as api, connect(api.url_template, replace(LIMITS, total=0.012)) as client:
            await asyncio.gather(*(one_after_the_other() for _ in range(AT_ONCE)))
        return ended

    ended = run(main())

    # The number of responses within this short time depends on the machine. No other results are allowed.
    assert set(ended) <= {"answered", "no response in time"}
    assert ended.total() == REQUESTS
