"""Commands for operators in a deployment with several sources."""

import asyncio
import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from acceptance.commands import closing_workers
from acceptance.dead_lettering import assert_one_line, lines, on_a_terminal
from acceptance.queued import Sources, fill
from acceptance.several_sources import Shops
from dead_letter_entries import dead_fields
from integration.scene import Scene, ids
from shipped import as_admin
from support import Cli, connected, eventually

from ingest.queue.layout.keys import Keys

INSERT = """
INSERT INTO orders (source, order_id, status, placed_at, currency, total, line_count, lines, version, fetched_at, attempts, enqueued_at,
                    ingested_at)
SELECT $1, unnest($2::text[]), 'placed', now(), 'EUR', 0, 0, '[]', now(), now(), 1, now(), now()
"""


@pytest.fixture
def stored(dsn: str) -> Callable[..., list[str]]:
    """Stores orders of a source if IDs are given, and returns the IDs of all of its orders."""

    async def run(source: str, *order_ids: str) -> list[str]:
        async with connected(dsn) as sql:
            await sql.execute(INSERT, source, list(order_ids))
            rows = await sql.fetch("SELECT order_id FROM orders WHERE source = $1 ORDER BY order_id", source)
            return [row["order_id"] for row in rows]

    return lambda *arguments: asyncio.run(run(*arguments))


# -- dead letters -------------------------------------------------------------------------------------------------


def test_dead_letters_of_all_sources_are_listed_together_with_their_source(sources: Sources) -> None:
    sources.dead_letter("shop-de", "1", dead_at=1_700_000_000_000)
    sources.dead_letter("shop-fr", "1", dead_at=1_700_000_001_000)
    sources.dead_letter("shop-de", "2", dead_at=1_700_000_002_000)

    table = sources.run("dead", "list")
    as_json = sources.run("dead", "list", "--json")
    of_one = sources.run("dead", "list", "--source", "shop-fr", "--json")
    shown = sources.run("dead", "show", "1")

    header, *rows = table.stdout.splitlines()
    assert header.split()[:3] == ["source", "id", "order"]
    assert [(row.split()[0], row.split()[2]) for row in rows] == [("shop-de", "2"), ("shop-fr", "1"), ("shop-de", "1")]
    assert [(each["source"], each["order_id"]) for each in lines(as_json.stdout)] == [
        ("shop-de", "2"),
        ("shop-fr", "1"),
        ("shop-de", "1"),
    ]
    assert [each["source"] for each in lines(of_one.stdout)] == ["shop-fr"]
    assert [line.split()[1] for line in shown.stdout.splitlines() if line.startswith("source")] == [
        "shop-fr",
        "shop-de",
    ]


def test_dead_letters_are_exported_with_their_source(sources: Sources) -> None:
    for source, order_id in (("shop-fr", "1"), ("shop-de", "2"), ("shop-fr", "3")):
        sources.dead_letter(source, order_id)

    as_json = sources.run("dead", "export")
    as_csv = sources.run("dead", "export", "--format", "csv", "--source", "shop-fr")

    exported = [(each["source"], each["order_id"]) for each in lines(as_json.stdout)]
    assert exported == [("shop-de", "2"), ("shop-fr", "1"), ("shop-fr", "3")]
    rows = csv.DictReader(as_csv.stdout.splitlines())
    assert [(row["source"], row["order_id"]) for row in rows] == [("shop-fr", "1"), ("shop-fr", "3")]


def test_a_change_of_dead_letters_needs_a_source_if_there_are_several(sources: Sources) -> None:
    for source in sources.keys:
        sources.dead_letter(source, "1")

    everywhere = sources.run("dead", "replay", "1", "--yes")
    dry = sources.run("dead", "replay", "--all", "--dry-run")
    unknown = sources.run("dead", "replay", "1", "--source", "shop-it")
    replayed = sources.run("dead", "replay", "1", "--source", "shop-fr")

    assert_one_line(everywhere, 2)
    assert "--source, from shop-de, shop-fr" in everywhere.stderr
    assert dry.stdout == "would replay 2 dead letters: shop-de 1 (1 not_found), shop-fr 1 (1 not_found)\n"
    assert_one_line(unknown, 2)
    assert "shop-de, shop-fr" in unknown.stderr
    assert replayed.stdout == "replayed 1 dead letter of shop-fr: 1 not_found\n"
    assert (sources.dead("shop-de"), sources.queued("shop-de")) == (["1"], [])
    assert (sources.dead("shop-fr"), sources.queued("shop-fr")) == ([], ["1"])


def test_the_question_before_a_change_of_several_sources_counts_each(cli: Cli, sources: Sources) -> None:
    sources.dead_letter("shop-de", "1")
    sources.dead_letter("shop-fr", "1", "rejected")
    sources.dead_letter("shop-fr", "2")
    both = ("--source", "shop-de", "--source", "shop-fr")

    code, written = on_a_terminal(cli, "dead", "drop", "--all", *both, answer=b"n\n", env={"COLUMNS": "200"})
    dropped = sources.run("dead", "drop", "1", "3", *both, "--yes", "--json")

    assert code == 1
    assert "Would drop 3 dead letters: shop-de 1 (1 not_found), shop-fr 2 (1 not_found, 1 rejected)." in written
    assert (dropped.returncode, json.loads(dropped.stdout)) == (
        1,
        {
            "matched": 2,
            "dropped": 2,
            "gone": 0,
            "reasons": {"not_found": 1, "rejected": 1},
            "sources": [
                {"source": "shop-de", "matched": 1, "dropped": 1, "reasons": {"not_found": 1}},
                {"source": "shop-fr", "matched": 1, "dropped": 1, "reasons": {"rejected": 1}},
            ],
            "missing": ["3"],
            "dry_run": False,
        },
    )
    assert (sources.dead("shop-de"), sources.dead("shop-fr")) == ([], ["2"])


# -- retries ------------------------------------------------------------------------------------------------------


def test_retries_are_listed_and_changed_by_source(sources: Sources) -> None:
    for source, order_id, due in (("shop-de", "1", 4e12), ("shop-fr", "1", 4e12 - 1), ("shop-fr", "2", 4e12 + 1)):
        sources.let_wait(source, order_id, int(due))

    table = sources.run("retries", "list", "--limit", "2")
    as_json = sources.run("retries", "list", "--json", "--source", "shop-fr")
    moved = sources.run("retries", "dead-letter", "1", "--source", "shop-de")

    header, *rows = table.stdout.splitlines()
    assert header.split()[:2] == ["source", "order"]
    assert [row.split()[:2] for row in rows] == [["shop-fr", "1"], ["shop-de", "1"]]
    assert "more than these 2" in table.stderr
    assert [(each["source"], each["order_id"]) for each in lines(as_json.stdout)] == [
        ("shop-fr", "1"),
        ("shop-fr", "2"),
    ]
    assert moved.stdout == "dead-lettered 1 retry of shop-de: 1 timeout\n"
    assert (sources.dead("shop-de"), sources.dead("shop-fr")) == (["1"], [])


# -- orders -------------------------------------------------------------------------------------------------------


def test_an_order_is_shown_in_every_source_that_has_it(sources: Sources, stored: Callable[..., list[str]]) -> None:
    stored("shop-fr", "1")
    sources.dead_letter("shop-de", "1")

    shown = sources.run("order", "show", "1", "2")
    as_json = sources.run("order", "show", "1", "2", "--json")
    of_one = sources.run("order", "show", "1", "--source", "shop-fr", "--json")

    states = [line for line in shown.stdout.splitlines() if line.startswith("order")]
    assert states == ["order 1 of shop-de: dead", "order 1 of shop-fr: stored"]
    assert (shown.returncode, shown.stderr) == (1, "order 2 is found nowhere\n")
    found = [(each["source"], each["order_id"], each["ingestion"]["state"]) for each in lines(as_json.stdout)]
    assert found == [("shop-de", "1", "dead"), ("shop-fr", "1", "stored")]
    assert [each["source"] for each in lines(of_one.stdout)] == ["shop-fr"]


def test_the_limit_of_a_search_is_of_all_sources_together(sources: Sources) -> None:
    fill(sources.redis, sources.keys["shop-de"].stream, 3_999)
    fill(sources.redis, sources.keys["shop-fr"].stream, 30_000)
    sources.dead_letter("shop-de", "1")

    dead = sources.run("order", "show", "1")
    as_json = sources.run("order", "show", "1", "--json")

    assert dead.stdout.startswith("order 1 of shop-de: dead\n")
    in_part, command = dead.stderr.splitlines()
    assert re.fullmatch("shop-fr: searched 6,0.. of 30,000 entries of the queue, because it is long", in_part), in_part
    assert command == "`ingest order show --thorough 1` searches all of them"
    found = [(each["source"], each["ingestion"]["searched"]) for each in lines(as_json.stdout)]
    assert found == [("shop-de", True), ("shop-fr", False)]


def test_an_order_is_erased_in_one_source_only(dsn: str, sources: Sources, stored: Callable[..., list[str]]) -> None:
    for source in sources.keys:
        stored(source, "1")
        sources.dead_letter(source, "1")

    nowhere = sources.run("order", "erase", "1", "--yes")
    erased = sources.run("order", "erase", "1", "--yes", "--source", "shop-fr", "--json")

    async def audited() -> list[tuple[str, str, int]]:
        async with connected(dsn) as sql:
            found = await sql.fetch("SELECT source, phase, count FROM audit_log ORDER BY at, phase")
            return [tuple(row) for row in found]

    assert_one_line(nowhere, 2)
    assert "--source" in nowhere.stderr
    removed = {"rows": 1, "retries": 0, "dead_letters": 1}
    assert json.loads(erased.stdout) == {"source": "shop-fr", "erased": ["1"], "removed": removed, "dry_run": False}
    assert (stored("shop-de"), stored("shop-fr")) == (["1"], [])
    assert (sources.dead("shop-de"), sources.dead("shop-fr")) == (["1"], [])
    assert asyncio.run(audited()) == [("shop-fr", "begun", 1), ("shop-fr", "done", 2)]


@pytest.mark.parametrize(
    "command", [["enqueue", "1"], ["order", "erase", "1", "--yes"], ["order", "refetch", "1"], ["remap"], ["reconcile"]]
)
def test_a_command_for_one_source_rejects_two_rather_than_leaving_out_one(sources: Sources, command: list[str]) -> None:
    rejected = sources.run(*command, "--source", "shop-de", "--source", "shop-fr")

    assert_one_line(rejected, 2)
    assert "give --source once, not for shop-de, shop-fr" in rejected.stderr


def test_reconciling_compares_the_list_with_the_orders_of_one_source(
    sources: Sources, stored: Callable[..., list[str]]
) -> None:
    stored("shop-de", "1", "2")
    stored("shop-fr", "1")

    unnamed = sources.run("reconcile", "1", "2")
    found = {source: sources.run("reconcile", "1", "2", "--source", source, "--json") for source in sources.keys}

    assert_one_line(unnamed, 2)
    reports = {source: json.loads(done.stdout) for source, done in found.items()}
    assert {name: (each["source"], each["stored"], each["lost"]["count"]) for name, each in reports.items()} == {
        "shop-de": ("shop-de", 2, 0),
        "shop-fr": ("shop-fr", 1, 1),
    }


# -- status and doctor --------------------------------------------------------------------------------------------


def test_the_status_of_all_sources_has_one_line_each(sources: Sources, stored: Callable[..., list[str]]) -> None:
    stored("shop-de", "1", "2")
    sources.let_wait("shop-fr", "1")

    table = sources.run("status")
    as_json = json.loads(sources.run("status", "--json").stdout)
    details = sources.run("status", "--source", "shop-fr")

    assert [line.split()[:6] for line in table.stdout.splitlines()] == [
        ["source", "waiting", "pending", "retries", "dead", "stored"],
        ["shop-de", "0", "0", "0", "0", "2"],
        ["shop-fr", "0", "0", "1", "0", "0"],
        ["total", "0", "0", "1", "0", "2"],
        ["no", "worker", "is", "running:", "start", "one"],
    ]
    assert [(each["source"], each["orders"]["stored"], each["queue"]["retries"]) for each in as_json["sources"]] == [
        ("shop-de", 2, 0),
        ("shop-fr", 0, 1),
    ]
    assert (as_json["totals"]["stored"], as_json["totals"]["retries"], as_json["errors"]) == (2, 1, {})
    assert [line.split() for line in details.stdout.splitlines()[:1]] == [["source", "shop-fr"]]


def test_doctor_checks_each_source_and_names_the_queues_of_removed_ones(
    sources: Sources, queue_name: str, redis_url: str
) -> None:
    removed = Keys.of(f"{queue_name}/shop-it")
    sources.redis.xadd(removed.stream, {"order_id": "1"})
    sources.redis.xadd(removed.dead, dead_fields("2"))
    sources.redis.xadd(Keys.of(f"{queue_name}-other/shop-it").stream, {"order_id": "1"})

    # The user of workers may not scan the keys.
    done = sources.run("doctor", "--json", env={"INGEST_REDIS_URL": as_admin(redis_url)})
    of_one = sources.run("doctor", "--source", "shop-fr", "--json")
    with_order = sources.run("doctor", "--order-id", "1")

    findings = json.loads(done.stdout)["findings"]
    unreachable = [each["source"] for each in findings if "127.0.0.1:1 cannot be reached" in each["what"]]
    assert unreachable == ["shop-de", "shop-fr"]
    remaining = [each["what"] for each in findings if "still contains orders" in each["what"]]
    where = f"the source shop-it is not in the sources file, and its queue {queue_name}/shop-it still contains orders"
    assert remaining == [f"{where}: 1 waiting, 0 pending, 0 retries and 1 dead letters"]
    assert {each["source"] for each in json.loads(of_one.stdout)["findings"]} == {"", "shop-fr"}
    assert_one_line(with_order, 2)


def test_without_the_right_to_scan_the_queue_of_a_removed_source_with_stored_orders_is_found(
    sources: Sources, queue_name: str, stored: Callable[..., list[str]]
) -> None:
    sources.redis.xadd(Keys.of(f"{queue_name}/shop-it").stream, {"order_id": "1"})
    stored("shop-it", "2")
    done = sources.run("doctor", "--json")

    found = [each["what"] for each in json.loads(done.stdout)["findings"] if "still contains orders" in each["what"]]
    assert [what.partition(" is not")[0] for what in found] == ["the source shop-it"]


# -- with workers -------------------------------------------------------------------------------------------------


async def test_refetching_and_remapping_change_the_orders_of_one_source_while_workers_run(
    scene: Scene, cli: Cli, tmp_path: Path
) -> None:
    async with Shops.open(scene, tmp_path / "sources.toml", "a", "b") as shops:
        shops.write(a="keep_document = true", b="keep_document = true")
        with closing_workers(cli, shops.workers(cli).env) as workers:
            workers.start(processes=1)
            for name in "ab":
                await shops[name].enqueue(*ids(3))
                await shops.stored(name, ids(3))
                await shops[name].finished()

            def run(*arguments: str) -> Any:
                done = cli.run(*arguments, "--json", env=workers.env)
                assert done.returncode == 0, done.stderr
                return json.loads(done.stdout)

            status = await asyncio.to_thread(run, "status")
            refetched = await asyncio.to_thread(run, "order", "refetch", "--source", "b", *ids(3))
            await eventually(lambda: shops["b"].api.stats().requests == 6)
            remapped = await asyncio.to_thread(run, "remap", "--source", "a")

        assert [(each["source"], each["orders"]["stored"], len(each["consumers"])) for each in status["sources"]] == [
            ("a", 3, 1),
            ("b", 3, 1),
        ]
        assert refetched == {"source": "b", "enqueued": ids(3), "stored": 3}
        assert shops["a"].api.stats().requests == 3
        assert (remapped["source"], remapped["examined"], remapped["unchanged"]) == ("a", 3, 3)


# -- a source whose table cannot be used --------------------------------------------------------------------------


def test_other_sources_are_shown_and_changed_while_the_table_of_one_cannot_be_used(
    sources: Sources, tmp_path: Path
) -> None:
    with (tmp_path / "sources.toml").open("a") as file:
        file.write("[sources.shop-fr]\nnonsense = 1\n")

    views = [sources.run(*view) for view in (("status",), ("source", "list"), ("top", "--once"))]
    changes = [
        sources.run(*change, "--source", "shop-de")
        for change in (("status",), ("enqueue", "1"), ("pause",), ("resume",), ("dead", "list"))
    ]

    assert [(each.returncode, "shop-de" in each.stdout) for each in views] == [(2, True)] * 3
    assert all("sources.shop-fr.nonsense" in each.stderr for each in views)
    assert [each.returncode for each in changes] == [0] * 5
