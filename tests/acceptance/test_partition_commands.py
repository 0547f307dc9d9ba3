"""`ingest partitions …` as real processes: output, progress, interruption and exit codes."""

import json
import signal
from pathlib import Path

from acceptance.queued import Queued, Sources
from accounts import PASSWORD, QUEUE, create_user
from dead_letter_entries import dead_fields
from redis import Redis
from servers.kinds import KINDS
from support import Cli, eventually_sync

from ingest.queue.layout.keys import Keys
from ingest.queue.partitions.layout_record import layout_key


def test_a_queue_has_one_partition_at_first(cli: Cli, queue_name: str) -> None:
    done = cli.run("partitions")

    assert (done.returncode, done.stderr) == (0, "")
    header, row = done.stdout.splitlines()
    assert header.split() == ["queue", "phase", "waiting", "pending", "retries", "dead", "oldest"]
    assert row.split() == [queue_name, "current", "0", "0", "0", "0", "-"]


def test_the_number_of_partitions_is_changed_and_shown(cli: Cli, queued: Queued, queue_name: str) -> None:
    queued.dead_letter("a")

    planned = cli.run("partitions", "set", "3", "--dry-run")
    changed = cli.run("partitions", "set", "3")
    again = cli.run("partitions", "set", "3", "--json")
    shown = json.loads(cli.run("partitions", "--json").stdout)

    assert planned.stdout == (
        f"would change {queue_name} from 1 to 3 partitions, wait for up to 0 orders, and move up to 1 dead letter\n"
    )
    assert (changed.returncode, changed.stdout) == (
        0,
        f"{queue_name} has 3 partitions, before 1, 1 dead letter moved\n",
    )
    assert changed.stderr == "configure 3 partitions as well: INGEST_PARTITIONS is 1\n"
    assert json.loads(again.stdout) == {
        "source": "", "queue": queue_name, "before": 3, "partitions": 3, "former": [], "moved": 0, "dry_run": False,
    }  # fmt: skip
    assert [shown[name] for name in ("partitions", "former", "configured")] == [3, [], 1]
    assert [(each["queue"], each["phase"]) for each in shown["queues"]] == [
        (f"{queue_name}:{number}", "current") for number in range(3)
    ]
    assert sum(each["dead"] for each in shown["queues"]) == 1


def test_an_interrupted_change_continues(cli: Cli, queued: Queued, queue_name: str) -> None:
    entry_id = queued.redis.xadd(queued.keys.stream, {"order_id": "a"})

    command = cli.start("partitions", "set", "2")
    eventually_sync(lambda: queued.redis.hexists(queued.keys.clock, "closed"))
    command.send_signal(signal.SIGINT)
    _, errors = command.communicate(timeout=20)
    waiting = cli.run("partitions").stdout.splitlines()
    queued.redis.xdel(queued.keys.stream, entry_id)
    done = cli.run("partitions", "set", "2")

    assert command.returncode == 130
    assert "run `ingest partitions set 2` again to continue it" in errors
    assert waiting[3].split()[:3] == [queue_name, "former", "1"]
    assert "workers still read former partitions. `ingest partitions set 2` drops them" in waiting[4]
    assert (done.returncode, done.stdout) == (0, f"{queue_name} has 2 partitions\n")


def test_orders_outside_of_the_partitions_are_shown(cli: Cli, queued: Queued, queue_name: str) -> None:
    cli.run("partitions", "set", "2")
    queued.redis.xadd(queued.keys.stream, {"order_id": "a"})

    lines = cli.run("partitions").stdout.splitlines()

    assert lines[3].split()[:3] == [queue_name, "outside", "1"]
    assert "no worker reads the orders outside of the partitions. `ingest partitions set 2`" in lines[4]


def test_each_source_has_its_own_partitions(sources: Sources, queue_name: str) -> None:
    unnamed = sources.run("partitions", "set", "2")
    changed = sources.run("partitions", "set", "2", "--source", "shop-fr")
    shown = json.loads(sources.run("partitions", "--json").stdout)

    assert unnamed.returncode == 2
    assert "choose one with --source" in unnamed.stderr
    assert changed.stdout == f"{queue_name}/shop-fr has 2 partitions, before 1\n"
    assert "sources.shop-fr.partitions is 1" in changed.stderr
    assert [(each["source"], each["partitions"]) for each in shown["sources"]] == [("shop-de", 1), ("shop-fr", 2)]
    assert sources.redis.exists(layout_key(f"{queue_name}/shop-fr")) == 1
    assert sources.redis.hexists(Keys.of(f"{queue_name}/shop-fr").clock, "closed")


def test_a_wrong_number_is_refused(cli: Cli) -> None:
    for number in ("0", "65", "x"):
        done = cli.run("partitions", "set", number)

        assert done.returncode == 2
        assert done.stderr.startswith("ingest: Invalid value for 'N'")


def test_an_unavailable_redis_is_waited_for(cli: Cli) -> None:
    cli.env["INGEST_REDIS_URL"] = "redis://127.0.0.1:1/0"

    command = cli.start("partitions", "set", "2")
    line = command.stderr.readline()
    command.send_signal(signal.SIGTERM)
    command.communicate(timeout=20)

    assert "Redis cannot be reached" in line


def test_the_user_of_the_workers_may_change_the_partitions(cli: Cli, tmp_path: Path) -> None:
    kind = KINDS[0]
    with kind.server(tmp_path / "server") as server, Redis.from_url(server.url) as redis:
        own = {"INGEST_STREAM": QUEUE, "INGEST_REDIS_PASSWORD": PASSWORD}
        cli.env |= own | {"INGEST_REDIS_URL": create_user(server.url, kind, "ingest")}
        redis.xadd(Keys.of(QUEUE).dead, dead_fields("a"))
        redis.xadd(Keys.of(QUEUE).results, {"order_id": "a"})

        done = [cli.run("partitions", "set", number) for number in ("6", "1")]

        assert [each.returncode for each in done] == [0, 0]
        assert redis.acl_log() == []


LARGEST = "18446744073709551615-18446744073709551615"


def test_a_lane_with_the_largest_entry_id_is_found_and_repaired(cli: Cli, queued: Queued, queue_name: str) -> None:
    queued.redis.xadd(queued.keys.stream, {"order_id": "a"})
    queued.redis.xadd(queued.keys.stream, {"order_id": "b"}, id=LARGEST)
    queued.redis.xadd(queued.keys.express, {"order_id": "c"}, id=LARGEST)
    problems = [
        f"{queue_name}: the {lane} lane has used up its entry IDs, and accepts no orders"
        for lane in ("main", "express")
    ]

    rejected = cli.run("enqueue", "d")
    status = cli.run("status", env={"COLUMNS": "200"})
    doctor = cli.run("doctor", env={"COLUMNS": "400"})
    top = cli.run("top", "--once", env={"COLUMNS": "200"})
    listed = cli.run("source", "list", env={"COLUMNS": "400"})
    listed_json = json.loads(cli.run("source", "list", "--json").stdout)
    planned = cli.run("partitions", "repair", "--dry-run")
    repaired = cli.run("partitions", "repair", env={"INGEST_LOG_FORMAT": "console"})
    again = cli.run("partitions", "repair", "--json")
    accepted = cli.run("enqueue", "d")

    assert rejected.returncode == 1
    assert "ingest partitions repair" in rejected.stderr
    assert all(f"{problem}: run `ingest partitions repair`" in status.stdout.splitlines() for problem in problems)
    assert all(f"the queue {problem}" in doctor.stdout + doctor.stderr for problem in problems)
    for problem in (problem.removeprefix(f"{queue_name}: ") for problem in problems):
        assert f" {problem}: run `ingest partitions repair`" in top.stdout.splitlines()
        assert problem in listed.stdout
        assert problem in listed_json["id_problems"]
    assert planned.stdout.splitlines() == problems
    assert repaired.stdout.splitlines() == [
        f"{queue_name}: the main lane is repaired, 2 orders moved",
        f"{queue_name}: the express lane is repaired, 1 order moved",
    ]
    assert json.loads(again.stdout) == {"lanes": [], "dry_run": False}
    assert (accepted.returncode, queued()) == (0, ["a", "b", "d"])


def test_the_user_of_the_workers_may_repair_the_lanes_of_each_partition_and_source(
    cli: Cli, sources: Sources, tmp_path: Path
) -> None:
    del sources  # configured by the fixture
    kind = KINDS[0]
    with kind.server(tmp_path / "server") as server, Redis.from_url(server.url) as redis:
        own = {"INGEST_STREAM": QUEUE, "INGEST_REDIS_PASSWORD": PASSWORD}
        cli.env |= own | {"INGEST_REDIS_URL": create_user(server.url, kind, "ingest")}
        assert cli.run("partitions", "set", "3", "--source", "shop-de").returncode == 0
        streams = [Keys.of(f"{QUEUE}/shop-de:{number}").stream for number in range(3)] + [
            Keys.of(f"{QUEUE}/shop-fr").express
        ]
        for stream in streams:
            redis.xadd(stream, {"order_id": "a"}, id=LARGEST)

        repaired = json.loads(cli.run("partitions", "repair", "--json").stdout)

        assert [(each["queue"], each["lane"]) for each in repaired["lanes"]] == [
            *((f"{QUEUE}/shop-de:{number}", "main") for number in range(3)),
            (f"{QUEUE}/shop-fr", "express"),
        ]
        assert [redis.xlen(stream) for stream in streams] == [1, 1, 1, 1]
        assert redis.acl_log() == []


def test_a_repair_without_the_right_to_rename_moves_nothing(cli: Cli, tmp_path: Path) -> None:
    kind = KINDS[0]
    with kind.server(tmp_path / "server") as server, Redis.from_url(server.url) as redis:
        own = {"INGEST_STREAM": QUEUE, "INGEST_REDIS_PASSWORD": PASSWORD}
        cli.env |= own | {"INGEST_REDIS_URL": create_user(server.url, kind, "ingest")}
        redis.execute_command("ACL", "SETUSER", "ingest", "clearselectors")
        redis.xadd(Keys.of(QUEUE).stream, {"order_id": "a"}, id=LARGEST)

        done = cli.run("partitions", "repair")

        assert done.returncode == 1
        assert "rename" in done.stderr
        assert redis.xlen(Keys.of(QUEUE).stream) == 1
