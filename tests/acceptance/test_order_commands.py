"""`ingest order` and `ingest retries` as operators and scripts use them."""

import asyncio
import json
import os
import pwd
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from acceptance.dead_lettering import assert_one_line, lines, on_a_terminal
from acceptance.queued import fill
from dead_letter_entries import dead_fields
from redis import Redis
from shipped import as_admin
from support import INSERT_ORDER, Cli, connected, eventually_sync

from ingest.domain.orders.order_history import DeliveryNote, HistoryEvent, RecordedEvent
from ingest.operations.stored_orders.order_places import QUICKLY_SEARCHED
from ingest.queue.layout.keys import Keys
from ingest.store.connections.pool import Pool
from ingest.store.orders.history import HistoryStore


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    with Redis.from_url(as_admin(redis_url)) as client:
        yield client


@pytest.fixture
def keys(queue_name: str) -> Keys:
    return Keys.of(queue_name)


def let_wait(redis: Redis, keys: Keys, order_id: str, **fields: str) -> None:
    let_all_wait(redis, keys, [order_id], **fields)


def let_all_wait(redis: Redis, keys: Keys, order_ids: list[str], **fields: str) -> None:
    about = {"attempt": "3", "retry_reason": "timeout", "retry_error": "no answer", **fields}
    rest = [part for pair in about.items() for part in pair]
    entries = {f"1-{each}": msgspec.msgpack.encode(["order_id", each, *rest]) for each in order_ids}
    redis.hset(keys.retry_entries, mapping=entries)  # type: ignore[arg-type]
    redis.zadd(keys.retry, dict.fromkeys(entries, 4_000_000_000_000))


# -- show ---------------------------------------------------------------------------------------------------------


def test_an_order_is_shown_with_all_places_where_it_is(cli: Cli, redis: Redis, keys: Keys) -> None:
    redis.xadd(keys.stream, {"order_id": "A"})
    redis.xadd(keys.dead, dead_fields("A", error="HTTP 404 \x1b[31m"))
    let_wait(redis, keys, "A")

    done = cli.run("order", "show", "A", "B")

    first, retrying, queued, dead = sorted(done.stdout.splitlines()[:1]) + sorted(
        done.stdout.splitlines()[1:], key=lambda line: ("retrying" not in line, "queued" not in line)
    )
    assert first == "order A: retrying"
    assert "attempt 3 at 2096-10-02" in retrying
    assert retrying.endswith(": timeout: no answer")
    assert "in the main lane" in queued
    assert dead.endswith(": not_found: HTTP 404 \\x1b[31m")
    assert done.stderr == "order B is found nowhere\n"
    assert done.returncode == 1


def test_json_is_one_object_per_order_also_for_those_that_are_nowhere(cli: Cli, redis: Redis, keys: Keys) -> None:
    redis.xadd(keys.stream, {"order_id": "A"})

    done = cli.run("order", "show", "A", "B", "A", "--json")

    shown = lines(done.stdout)
    assert [(each["order_id"], each["ingestion"]["state"]) for each in shown] == [("A", "queued"), ("B", "not_found")]
    assert (done.returncode, done.stderr) == (1, "")


def test_json_has_no_character_that_a_terminal_takes_for_a_command(cli: Cli, redis: Redis, keys: Keys) -> None:
    error = "Zoë \x9b31m \u202e \x7f"
    redis.xadd(keys.dead, dead_fields("A", error=error))

    done = cli.run("order", "show", "A", "--json")

    [shown] = lines(done.stdout)
    assert shown["ingestion"]["entries"][0]["error"] == error
    assert done.stdout.removesuffix("\n").isprintable()
    assert "Zoë" in done.stdout


LAST = f"L{QUICKLY_SEARCHED + 10_000}"


def test_of_a_long_queue_the_beginning_is_searched_and_all_of_it_on_request(
    cli: Cli, dsn: str, redis: Redis, keys: Keys
) -> None:
    fill(redis, keys.stream, QUICKLY_SEARCHED + 10_000)
    redis.xadd(keys.dead, dead_fields("D"))
    store(dsn, "A")

    wanted = ("A", "D", "L7", LAST)
    quick = cli.run("order", "show", *wanted)
    as_json = cli.run("order", "show", *wanted, "--json")
    thorough = cli.run("order", "show", "--thorough", *wanted)
    hint = cli.run("order", "show", "--", "-1 '")

    searched = "searched 10,001 of 20,001 entries of the queue, because it is long"
    command = f"`ingest order show --thorough A D L7 {LAST}` searches all of them"
    missing = f"order {LAST} is found neither in the database nor in the part of the queue that was searched"
    assert headings(quick.stdout) == ["order A: stored (queue searched in part)", "order D: dead", "order L7: queued"]
    assert (quick.returncode, quick.stderr.splitlines()) == (1, [missing, searched, command])
    found = [each["ingestion"] for each in lines(as_json.stdout)]
    assert [(each["state"], each["searched"]) for each in found] == [
        ("unknown", False),
        ("dead", False),
        ("queued", False),
        ("unknown", False),
    ]
    assert {each["problem"] for each in found} == {searched}
    assert as_json.stderr.splitlines() == [searched, command]
    assert headings(thorough.stdout) == [
        "order A: stored",
        "order D: dead",
        "order L7: queued",
        f"order {LAST}: queued",
    ]
    assert (thorough.returncode, thorough.stderr) == (0, "")
    assert hint.stderr.splitlines()[-1] == """`ingest order show --thorough -- '-1 '"'"''` searches all of them"""


def headings(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("order")]


# -- erase --------------------------------------------------------------------------------------------------------


def test_erased_orders_are_shown_as_erased(cli: Cli, redis: Redis, keys: Keys) -> None:
    redis.xadd(keys.dead, dead_fields("A"))
    let_wait(redis, keys, "A")

    counted = cli.run("order", "erase", "A", "B", "--dry-run")
    erased = cli.run("order", "erase", "A", "B", "--yes")
    shown = cli.run("order", "show", "A", "B")

    assert counted.stdout == "would erase 2 orders: 0 rows, 1 retry, 1 dead letter\n"
    assert erased.stdout == "erased 2 orders: removed 0 rows, 1 retry, 1 dead letter\n"
    assert [line for line in shown.stdout.splitlines() if line.startswith("order")] == [
        "order A: erased",
        "order B: erased",
    ]
    assert shown.returncode == 0
    assert (redis.xlen(keys.dead), redis.hlen(keys.retry_entries)) == (0, 0)


def test_erasing_asks_first_and_a_script_has_to_say_yes(cli: Cli, redis: Redis, keys: Keys) -> None:
    redis.xadd(keys.dead, dead_fields("A"))

    assert_one_line(cli.run("order", "erase", "A"), 2)
    code, output = on_a_terminal(cli, "order", "erase", "A", answer=b"n\n")
    assert (code, "nothing was changed" in output) == (1, True)
    assert redis.xlen(keys.dead) == 1

    code, output = on_a_terminal(cli, "order", "erase", "A", answer=b"y\n")
    assert (code, "erased 1 order" in output) == (0, True)
    assert redis.xlen(keys.dead) == 0


def test_an_erasure_that_redis_interrupts_says_what_to_do(cli: Cli) -> None:
    done = cli.run("order", "erase", "A", "--yes", env={"INGEST_REDIS_URL": "redis://127.0.0.1:1/0"})

    assert (done.returncode, done.stdout) == (1, "")
    failed, message = done.stderr.splitlines()
    assert json.loads(failed)["event"] == "operation_failed"
    assert "erased from the database; retries and dead letters may remain: run it again" in message
    assert "erased" in cli.run("order", "show", "A").stdout


def test_an_erasure_that_is_interrupted_says_what_is_erased(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        process = cli.start("order", "erase", "A", "--yes", env={"INGEST_REDIS_URL": url})
        with silent.accept()[0] as connection:  # the database is done
            # Now it waits for a reply. Interrupted in the callback that ends its connect, asyncio itself may log an exception.
            connection.recv(1)
            process.send_signal(signal.SIGINT)
            stdout, stderr = process.communicate(timeout=30)

    assert (process.returncode, stdout) == (130, "")
    assert len(stderr.splitlines()) == 3, stderr
    _, told, stopped = stderr.splitlines()
    assert told == "1 order erased from the database; retries and dead letters may remain: run it again to finish"
    assert stopped == "stopped"


def test_the_log_says_who_has_erased_an_order(cli: Cli) -> None:
    done = cli.run("order", "erase", "A", "--yes", "--json")

    [event] = [json.loads(line) for line in done.stderr.splitlines()]
    assert (event["event"], event["action"], event["selection"]) == ("operation_done", "orders.erase", {"ids": ["A"]})
    assert event["actor"] == f"cli:{pwd.getpwuid(os.getuid()).pw_name}"
    assert json.loads(done.stdout) == {
        "source": "",
        "erased": ["A"],
        "removed": {"rows": 0, "retries": 0, "dead_letters": 0},
        "dry_run": False,
    }


# -- retries ------------------------------------------------------------------------------------------------------


def test_retries_are_listed_run_now_and_dead_lettered(cli: Cli, redis: Redis, keys: Keys) -> None:
    for order_id in ("A", "B"):
        let_wait(redis, keys, order_id)
    let_wait(redis, keys, "C", retry_reason="connection")

    table = cli.run("retries", "list", "--limit", "2")
    as_json = cli.run("retries", "list", "--reason", "connection", "--json")
    dry = cli.run("retries", "run-now", "--reason", "timeout", "--dry-run")
    unconfirmed = cli.run("retries", "run-now", "--reason", "timeout")
    run = cli.run("retries", "run-now", "--reason", "timeout", "--yes")
    moved = cli.run("retries", "dead-letter", "C", "--json")

    assert [line.split()[0] for line in table.stdout.splitlines()] == ["order", "A", "B"]
    assert table.stdout.startswith("order  next attempt  ")
    assert "no answer" in table.stdout
    assert "there are more than these 2" in table.stderr
    assert [each["order_id"] for each in lines(as_json.stdout)] == ["C"]
    assert dry.stdout == "would run 2 retries now: 2 timeout\n"
    assert_one_line(unconfirmed, 2)
    assert run.stdout == "running 2 retries now: 2 timeout\n"
    assert json.loads(moved.stdout) == {
        "matched": 1,
        "dead_lettered": 1,
        "gone": 0,
        "reasons": {"connection": 1},
        "missing": [],
        "dry_run": False,
    }
    assert redis.zrangebyscore(keys.retry, 0, 3_000_000_000_000) == [b"1-A", b"1-B"]
    assert [fields[b"order_id"] for _, fields in redis.xrange(keys.dead)] == [b"C"]


def test_changes_of_dead_letters_and_retries_by_id_are_recorded(cli: Cli, redis: Redis, keys: Keys) -> None:
    for order_id in ("A", "B"):
        redis.xadd(keys.dead, dead_fields(order_id))
    let_all_wait(redis, keys, ["C", "D"])

    for command in ("dead replay A", "dead drop B", "retries run-now C", "retries dead-letter D"):
        assert cli.run(*command.split()).returncode == 0

    recorded = lines(cli.run("audit", "--json").stdout)
    assert [(each["action"], each["selection"], each["count"]) for each in reversed(recorded)] == [
        ("dead_letters.replay", {"ids": ["A"]}, 1),
        ("dead_letters.drop", {"ids": ["B"]}, 1),
        ("retries.run_now", {"ids": ["C"]}, 1),
        ("retries.dead_letter", {"ids": ["D"]}, 1),
    ]


def test_orders_that_are_enqueued_by_hand_are_recorded_with_their_number(
    cli: Cli, redis: Redis, keys: Keys, tmp_path: Path
) -> None:
    (tmp_path / "ids.txt").write_text("C\nD\nE\n")

    named, listed = cli.run("enqueue", "A", "B"), cli.run("enqueue", "--file", str(tmp_path / "ids.txt"))
    unrecorded = cli.run("enqueue", "F", env={"INGEST_POSTGRES_DSN": "postgresql://nobody@127.0.0.1:1/none"})

    assert [done.returncode for done in (named, listed, unrecorded)] == [0, 0, 0]
    assert redis.xlen(keys.stream) == 6
    assert "the audit log does not record this change: cannot connect" in unrecorded.stderr
    recorded = lines(cli.run("audit", "--action", "orders.announce", "--json").stdout)
    assert [(each["actor"], each["selection"], each["state"], each["count"]) for each in reversed(recorded)] == [
        (f"cli:{pwd.getpwuid(os.geteuid()).pw_name}", {"from": "the arguments"}, "done", 2),
        (f"cli:{pwd.getpwuid(os.geteuid()).pw_name}", {"from": str(tmp_path / "ids.txt")}, "done", 3),
    ]


def test_a_change_of_retries_that_is_interrupted_says_how_many_are_changed(cli: Cli, redis: Redis, keys: Keys) -> None:
    let_all_wait(redis, keys, [f"o-{number}" for number in range(20_000)])
    process = cli.start("retries", "dead-letter", "--all", "--yes")

    eventually_sync(lambda: redis.xlen(keys.dead) > 0, every=0.005)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=30)

    # Without a terminal, the progress and the audited operations are logged.
    continuation, told, stopped = [line for line in stderr.splitlines() if not line.startswith("{")]
    found = re.fullmatch(
        r"stopped after ([0-9,]+) retries of 20,000; up to 100 more may have been changed as well", told
    )
    assert found is not None, told
    assert re.fullmatch(r"the job \d+ is cancelled: continue it with `ingest job resume \d+`", continuation), (
        continuation
    )
    assert (process.returncode, stdout, stopped) == (130, "", "stopped")
    assert 0 <= redis.xlen(keys.dead) - int(found[1].replace(",", "")) <= 100
    assert redis.xlen(keys.dead) + redis.zcard(keys.retry) == 20_000


def test_changing_retries_needs_a_selection(cli: Cli) -> None:
    for command in ("run-now", "dead-letter"):
        assert_one_line(cli.run("retries", command), 2)
        assert_one_line(cli.run("retries", command, "A", "--all"), 2)
        assert cli.run("retries", command, "--all").stdout == "no retry matches\n"
    assert cli.run("retries", "list").stderr == "no retries\n"


def test_an_order_without_a_retry_is_reported_and_the_others_are_changed(cli: Cli, redis: Redis, keys: Keys) -> None:
    let_all_wait(redis, keys, ["A", "B"])

    for command, key in (("run-now", "running"), ("dead-letter", "dead_lettered")):
        done = cli.run("retries", command, "A", "C", "--json")
        assert [line for line in done.stderr.splitlines() if not line.startswith("{")] == ["no retry for C"]
        assert json.loads(done.stdout) == {
            "matched": 1,
            key: 1,
            "gone": 0,
            "reasons": {"timeout": 1},
            "missing": ["C"],
            "dry_run": False,
        }
        assert done.returncode == 1
    listed = cli.run("retries", "list", "B", "C", "--json")

    assert ([each["order_id"] for each in lines(listed.stdout)], listed.stderr) == (["B"], "no retry for C\n")
    assert listed.returncode == 1
    assert cli.run("retries", "list", "B").returncode == 0
    assert cli.run("retries", "run-now", "--reason", "http_status").returncode == 0


def test_an_order_whose_retry_does_not_meet_the_other_criteria_is_reported(cli: Cli, redis: Redis, keys: Keys) -> None:
    let_wait(redis, keys, "A")

    done = cli.run("retries", "run-now", "A", "--reason", "http_status", "--dry-run")

    assert (done.returncode, done.stdout, done.stderr) == (1, "no retry matches\n", "no retry for A\n")


# -- refetch ------------------------------------------------------------------------------------------------------


def test_orders_to_be_fetched_again_are_queued_in_the_express_lane(cli: Cli, redis: Redis, keys: Keys) -> None:
    done = cli.run("order", "refetch", "A", "B", "--json")

    assert (done.returncode, json.loads(done.stdout)) == (0, {"source": "", "enqueued": ["A", "B"], "stored": 0})
    assert [fields[b"order_id"] for _, fields in redis.xrange(keys.express)] == [b"A", b"B"]


# -- list and history -----------------------------------------------------------------------------------------------


def store(dsn: str, *order_ids: str, hours_ago: float = 0.0) -> None:
    async def insert() -> None:
        async with connected(dsn) as sql:
            for order_id in order_ids:
                await sql.execute(INSERT_ORDER, order_id)
            await sql.execute(
                "UPDATE orders SET ingested_at = now() - make_interval(secs => $2) WHERE order_id = ANY ($1)",
                list(order_ids),
                hours_ago * 3600,
            )

    asyncio.run(insert())


def test_orders_are_listed_by_the_time_of_their_last_change(cli: Cli, dsn: str) -> None:
    store(dsn, "old", hours_ago=5)
    store(dsn, "b", hours_ago=1.2)
    store(dsn, "a", hours_ago=1.1)

    listed = cli.run("order", "list", "--stored-between", "2h", "now", "--json")
    table = cli.run("order", "list", "--stored-between", "2h", "1h", "--limit", "1")
    nothing = cli.run("order", "list", "--status", "unheard of")
    wrong = cli.run("order", "list", "--stored-between", "1h", "2h")

    assert [each["order"]["id"] for each in lines(listed.stdout)] == ["b", "a"]
    assert [line.split()[0] for line in table.stdout.splitlines()] == ["order", "b"]
    assert table.stderr == "there are more than these 1: --limit lists more\n"
    assert (nothing.stdout, nothing.stderr, nothing.returncode) == ("", "no stored order matches\n", 0)
    assert_one_line(wrong, 2)


def test_the_history_of_an_order_is_shown_below_its_row_and_in_json(
    cli: Cli, dsn: str, redis: Redis, keys: Keys
) -> None:
    store(dsn, "A")
    redis.xadd(keys.stream, {"order_id": "A"})

    async def record() -> None:
        async with Pool.open(dsn, size=1) as pool:
            note = DeliveryNote("A", 2, 1769846400.0, "webhook:shop", None, "worker-1", 0.1234)
            error = "HTTP 503 \x1b[31m"
            retried = RecordedEvent(note, HistoryEvent.RETRIED, 60.0, 5.0, "http_status", error)
            await HistoryStore(pool).add([retried])

    asyncio.run(record())

    shown = cli.run("order", "show", "A")
    hidden = cli.run("order", "show", "A", "--history", "0")
    [as_json] = lines(cli.run("order", "show", "A", "--json").stdout)

    state, row, heading, enqueued, retried, queued = shown.stdout.splitlines()
    assert (state, heading) == ("order A: queued", "  history:")
    assert row.startswith("  stored at ")
    assert queued.startswith("  queued in the main lane")
    assert enqueued == "    2026-01-31 08:00:00.000  enqueued by webhook:shop"
    assert (
        "attempt 2 (request of 0.123 s, worker-1) failed: http_status: HTTP 503 \\x1b[31m; next attempt at" in retried
    )
    assert "history" not in hidden.stdout
    assert [event["event"] for event in as_json["history"]] == ["enqueued", "retried"]


def test_orders_of_a_query_are_enqueued_again_by_a_job_after_a_confirmation(
    cli: Cli, dsn: str, redis: Redis, keys: Keys
) -> None:
    store(dsn, "old", hours_ago=5)
    store(dsn, "a", "b", hours_ago=1.5)
    within = ("order", "refetch", "--stored-between", "2h", "1h")

    refused = cli.run(*within)
    done = cli.run(*within, "--yes", "--rate", "100")
    nothing = cli.run("order", "refetch", "--status", "unheard of", "--yes")
    both = cli.run("order", "refetch", "a", "--status", "placed")
    neither = cli.run("order", "refetch")
    [job] = lines(cli.run("job", "list", "--json").stdout)

    assert_one_line(refused, 2)
    assert done.stdout == f"enqueued 2 orders: `ingest job show {job['id']}` counts the rows that change\n"
    assert nothing.stdout == "no stored order matches\n"
    assert_one_line(both, 2)
    assert_one_line(neither, 2)
    assert (job["kind"], job["state"], job["done"]) == ("orders.enqueue", "done", 2)
    assert sorted(fields[b"order_id"] for _, fields in redis.xrange(keys.stream)) == [b"a", b"b"]  # type: ignore[union-attr]
