"""`ingest bench profile`: the stages of the code, and a run with all of them. Times are not asserted."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import Cli, closing_cli

from ingest.bench.errors import BenchFailed
from ingest.bench.profile.delivery_stages import STAGES, stage_of
from ingest.bench.profile.samples import count_by_stage, shares

ORDERS = 2_000


@pytest.fixture
def cli() -> Iterator[Cli]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("INGEST_")}
    with closing_cli(inherited) as running:
        yield running


@pytest.mark.long
@pytest.mark.parametrize("client", ["native", "aiohttp"])
def test_a_run_gives_each_stage_its_share(cli: Cli, client: str) -> None:
    small = ("--orders", str(ORDERS), "--latency", "0", "--in-flight", "50", "--client", client)

    done = cli.run("bench", "profile", *small, "--json", timeout=110)

    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    rows, (run,) = said["tables"][0]["rows"], said["runs"]
    assert [row["stage"] for row in rows] == [*STAGES]
    assert sum(row["share_percent"] for row in rows) == pytest.approx(100)
    assert sum(row["cpu_us_per_order"] for row in rows) == pytest.approx(run["own_cpu_us_per_order_without_startup"])
    assert next(row for row in rows if row["stage"] == "fetch: HTTP")["samples"] > 0
    assert (run["stored"], run["lost"], run["wrong"], run["exit_codes"]) == (ORDERS, 0, 0, [0])


@pytest.mark.parametrize(
    ("names", "stage"),
    [
        (["ingest.flow.deliver.scheduler:Scheduler._until_free", "ingest.flow.worker:Worker._work"], "read"),
        (["redis.asyncio.connection:AbstractConnection.read_response", "ingest.queue.consume.reading:QueueReading.read"], "read"),
        (["ingest.flow.held:Held.add", "ingest.flow.worker:Worker._take"], "bookkeeping"),
        (["ingest.upstream.session:ApiSession.send", "ingest.upstream.client:UpstreamClient.fetch"], "fetch: our client"),
        (["ingest.upstream.http.http1_connection:Http1Connection.data_received"], "fetch: HTTP"),
        (["asyncio.locks:Lock.acquire", "aiohttp.client:ClientSession._request"], "fetch: HTTP"),
        (["ingest.domain.orders.order:decode_order", "ingest.flow.deliver.decoding:OrderDecoder.decode"], "decode"),
        (["ingest.domain.orders.plain_order:_exact_total", "ingest.domain.orders.plain_order:decode_plain"], "decode"),
        (["ingest.domain.orders.order:Order.total", "ingest.domain.orders.order_row:OrderRow.of"], "row"),
        (["ingest.domain.orders.plain_order:PlainOrder.lines_json", "ingest.domain.orders.order_row:OrderRow.of"], "row"),
        (["ingest.flow.settle.settlement:Settlement.store", "ingest.flow.deliver.executor:Executor._process"], "batch"),
        (["asyncpg.connection:Connection.fetch", "ingest.flow.settle.writer:Writer._attempt"], "upsert"),
        (["ingest.flow.clock:steady", "ingest.flow.settle.acks:Acks.finish"], "ack"),
        (["ingest.queue.redis.direct_connection:DirectConnection.call", "ingest.queue.consume.liveness:LiveMember.renew"], "bookkeeping"),
        (["ingest.flow.deliver.handler:Handler.handle", "ingest.flow.deliver.executor:Executor._process"], "bookkeeping"),
        (["asyncio.streams:StreamReaderProtocol.data_received"], "event loop and the rest"),
        ([], "event loop and the rest"),
    ],
)  # fmt: skip
def test_a_sample_belongs_to_the_innermost_function_that_has_a_stage(names: list[str], stage: str) -> None:
    assert stage_of(names) == stage


def test_samples_of_all_processes_are_added(tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text('[[["ingest.flow.read.reader:Reader.read"], 2], [[], 1]]')
    (tmp_path / "2.json").write_text('[[["ingest.flow.deliver.scheduler:Scheduler.wait"], 1]]')
    (tmp_path / "2.unfinished").write_text('[[["ingest')

    counts = count_by_stage(tmp_path)

    assert {stage: count for stage, count in counts.items() if count} == {"read": 3, "event loop and the rest": 1}
    assert shares(counts)["read"] == 75
    assert [*counts] == [*STAGES]


def test_a_run_without_a_sample_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BenchFailed, match="--orders"):
        count_by_stage(tmp_path)
