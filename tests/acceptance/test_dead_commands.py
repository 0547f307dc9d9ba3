"""`ingest dead …` as real processes: output, confirmation, changes and exit codes."""

import asyncio
import json
import signal
import time
from collections import Counter
from typing import Any

import pytest
from acceptance.commands import Workers, closing_workers
from acceptance.dead_lettering import StoredDeadLetters, assert_one_line, lines, on_a_terminal
from dead_letter_entries import dead_fields
from integration.scene import Scene, document
from redis import Redis
from support import Cli, eventually, eventually_sync

from ingest.cli.queues.dead import COMMANDS
from ingest.queue.layout.keys import Keys

NOWHERE_REDIS = "redis://127.0.0.1:1/0"
CONTROL = "\x1b[31mred\x07\x9b1m [bold]x\n\u202egnp"


# -- list and show ------------------------------------------------------------------------------------------------


def test_list_shows_one_line_per_dead_letter_newest_first(cli: Cli, dead_lettered: StoredDeadLetters) -> None:
    now = int(time.time() * 1000)
    first, second = dead_lettered.add(
        dead_fields("a", "not_found", dead_at=now - 3 * 3_600_000),
        dead_fields(
            "b", "attempts_exhausted", attempts=5, error="HTTP 500", replays=2, replayed_at=now - 2 * 86_400_000
        ),
    )

    done = cli.run("dead", "list")

    assert (done.returncode, done.stderr) == (0, "")
    header, *rows = done.stdout.splitlines()
    assert header.split() == ["id", "order", "reason", "attempts", "dead", "since", "replays", "error"]
    assert rows[0].split()[:4] == [second, "b", "attempts_exhausted", "5"]
    assert "2, 2 d ago" in rows[0]
    assert rows[0].rstrip().endswith("HTTP 500")
    assert rows[1].split() == [first, "a", "not_found", "3", "3", "h", "ago", "HTTP", "404"]


def test_list_as_json_prints_one_object_per_line_with_all_fields(cli: Cli, dead_lettered: StoredDeadLetters) -> None:
    [entry_id] = dead_lettered.add(
        dead_fields("a", dead_at=1_700_000_000_123, first_enqueued_at=1_600_000_000_001, tenant=b"\xffo", replays=1,
               replayed_at=1_650_000_000_000)
    )  # fmt: skip

    done = cli.run("dead", "list", "--json")

    assert (done.returncode, done.stderr) == (0, "")
    assert lines(done.stdout) == [
        {
            "id": entry_id,
            "source": "",
            "order_id": "a",
            "reason": "not_found",
            "error": "HTTP 404",
            "attempts": 3,
            "dead_at": "2023-11-14T22:13:20.123Z",
            "first_enqueued_at": "2020-09-13T12:26:40.001Z",
            "worker": "w",
            "seen": 1,
            "last_seen_at": None,
            "replays": 1,
            "replayed_at": "2022-04-15T05:20:00.000Z",
            "fields": {"tenant": "\\xffo"},
        }
    ]


def test_the_count_of_an_order_that_was_seen_again_is_shown_everywhere(
    cli: Cli, dead_lettered: StoredDeadLetters
) -> None:
    [entry_id] = dead_lettered.add(dead_fields("a", ingest_seen_key="k"))
    noted = f"{entry_id} 8 {int(time.time() * 1000) - 3 * 3_600_000} 0"
    dead_lettered.redis.hset(dead_lettered.keys.dead_seen, "k", noted)

    table = cli.run("dead", "list", env={"COLUMNS": "200"})
    shown = cli.run("dead", "show", "a")
    as_json = [
        lines(cli.run("dead", *command).stdout)
        for command in (("list", "--json"), ("show", "a", "--json"), ("export",))
    ]
    as_csv = cli.run("dead", "export", "--format", "csv")

    assert table.stdout.splitlines()[1].rstrip().endswith("seen 8 times, last 3 h ago: HTTP 404")
    assert "8 times, last at " in next(line for line in shown.stdout.splitlines() if line.startswith("seen "))
    assert [[each["seen"] for each in found] for found in as_json] == [[8], [8], [8]]
    assert ",8,20" in as_csv.stdout.splitlines()[1]


def test_list_shows_no_more_than_its_limit_and_says_so(cli: Cli, dead_lettered: StoredDeadLetters) -> None:
    dead_lettered.add_many(dead_fields(f"o-{number}") for number in range(60))

    by_default, three, all_of_them = (
        cli.run("dead", "list", *arguments) for arguments in ([], ["--limit", "3"], ["--limit", "60", "--json"])
    )

    assert len(by_default.stdout.splitlines()) == 51
    assert [line.split()[1] for line in three.stdout.splitlines()[1:]] == ["o-59", "o-58", "o-57"]
    assert "more than these 50" in by_default.stderr
    assert "more than these 3" in three.stderr
    assert [found["order_id"] for found in lines(all_of_them.stdout)] == [f"o-{n}" for n in range(59, -1, -1)]
    assert all_of_them.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "listed"),
    [
        (["--reason", "not_found"], "a"),
        (["--reason", "not_found", "--reason", "rejected"], "ba"),
        (["--since", "90m"], "ca"),
        (["--until", "90m"], "bd"),
        (["--since", "2023-11-14T22:13Z", "--until", "2023-11-14T22:14"], "d"),
        (["--since", "90m", "--reason", "rejected"], ""),
        (["a", "b", "--reason", "rejected"], "b"),
        (["c", "a"], "ca"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_list_shows_dead_letters_that_meet_every_criterion(
    cli: Cli, dead_lettered: StoredDeadLetters, arguments: list[str], listed: str
) -> None:
    now = int(time.time() * 1000)
    dead_lettered.add(
        dead_fields("d", "unstorable", dead_at=1_700_000_000_123),
        dead_fields("b", "rejected", dead_at=now - 2 * 3_600_000),
        dead_fields("a", "not_found", dead_at=now - 60_000),
        dead_fields("c", "unstorable", dead_at=now - 60_000),
    )

    done = cli.run("dead", "list", "--json", *arguments)

    found = "".join(found["order_id"] for found in lines(done.stdout))
    assert sorted(found) == sorted(listed)
    assert done.returncode == (1 if arguments[0] == "a" else 0), done.stderr


def test_list_and_export_without_dead_letters_succeed(cli: Cli) -> None:
    table, json_lines, export = cli.run("dead", "list"), cli.run("dead", "list", "--json"), cli.run("dead", "export")

    assert [done.returncode for done in (table, json_lines, export)] == [0, 0, 0]
    assert (table.stdout, table.stderr) == ("", "no dead letters\n")
    assert (json_lines.stdout, json_lines.stderr, export.stdout, export.stderr) == ("", "", "", "")


def test_show_prints_every_detail_by_either_id(cli: Cli, dead_lettered: StoredDeadLetters) -> None:
    first, second, _ = dead_lettered.add(
        dead_fields(
            "a", error="HTTP 404", dead_at=1_700_000_000_123, replays=3, replayed_at=1_650_000_000_000, tenant="x"
        ),
        dead_fields("a", "rejected", document=b"{" + b"x" * 5_000),
        dead_fields("b"),
    )

    by_entry, by_order = cli.run("dead", "show", first), cli.run("dead", "show", "a")
    as_json = cli.run("dead", "show", first, "--json")

    assert (by_entry.returncode, by_order.returncode, by_entry.stderr + by_order.stderr) == (0, 0, "")
    facts = {line[:16].strip(): line[16:].strip() for line in by_entry.stdout.splitlines()}
    assert (facts["id"], facts["order"], facts["reason"], facts["error"]) == (first, "a", "not_found", "HTTP 404")
    assert facts["dead since"].startswith("2023-11-14T22:13:20Z (")
    assert (facts["attempts"], facts["worker"], facts["replays"], facts["tenant"]) == ("3", "w", "3", "x")
    assert facts["last replay"].startswith("2022-04-15T05:20:00Z (")
    assert by_order.stdout.count("\n\n") == 1
    assert first in by_order.stdout
    assert second in by_order.stdout
    assert "and 3,001 characters" in by_order.stdout
    assert json.loads(as_json.stdout)["fields"] == {"tenant": "x"}


@pytest.mark.parametrize("command", ["list", "show"])
def test_an_id_without_a_dead_letter_is_reported_and_the_others_are_shown(
    cli: Cli, dead_lettered: StoredDeadLetters, command: str
) -> None:
    dead_lettered.add(dead_fields("a"))

    table = cli.run("dead", command, "a", "b", "1-1", "\x1b[31m")
    as_json = cli.run("dead", command, "b", "a", "--json")

    assert (table.returncode, as_json.returncode) == (1, 1)
    assert table.stderr.splitlines() == [
        "no dead letter for \\x1b[31m",
        "no dead letter for 1-1",
        "no dead letter for b",
    ]
    assert [found["order_id"] for found in lines(as_json.stdout)] == ["a"]
    assert "not_found" in table.stdout


@pytest.mark.parametrize("arguments", [["list"], ["show", "1"], ["list", "--json"], ["export", "--format", "csv"], ["export"]], ids=" ".join)  # fmt: skip
def test_no_field_can_control_the_terminal(cli: Cli, dead_lettered: StoredDeadLetters, arguments: list[str]) -> None:
    entry = {"order_id": "1", "reason": CONTROL, "error": CONTROL, "worker": CONTROL, CONTROL: CONTROL}
    dead_lettered.add({name.encode(): value.encode() for name, value in entry.items()})

    code, written = on_a_terminal(cli, "dead", *arguments, env={"COLUMNS": "300", "NO_COLOR": "1"})

    assert code == 0
    for sign in ("\x07", "\x9b", "\u202e", "\x1b[31m"):
        assert sign not in written
    assert "[bold]x" in written


@pytest.mark.parametrize("arguments", [["list"], ["show", "a"], ["export", "--format", "csv"]], ids=" ".join)
def test_binary_values_and_terminals_without_unicode_are_not_an_error(
    cli: Cli, dead_lettered: StoredDeadLetters, arguments: list[str]
) -> None:
    dead_lettered.add(dead_fields("a", error="Zoë ☕".encode() + b"\xff", blob=bytes(range(256)), **{"": ""}))

    done = cli.run("dead", *arguments, env={"PYTHONIOENCODING": "ascii", "LC_ALL": "C"})

    assert (done.returncode, done.stderr) == (0, "")
    assert "Zoë ☕\\xff" in done.stdout


def test_dead_letters_are_those_of_the_group_in_the_settings(cli: Cli, redis_url: str, queue_name: str) -> None:
    with Redis.from_url(redis_url) as redis:
        StoredDeadLetters(redis, Keys.of(queue_name)).add(dead_fields("first"))
        StoredDeadLetters(redis, Keys.of(queue_name, "second")).add(dead_fields("second"))

    ours = cli.run("dead", "list", "--json")
    others = cli.run("dead", "list", "--json", env={"INGEST_GROUP": "second"})

    assert [entry["order_id"] for entry in lines(ours.stdout)] == ["first"]
    assert [entry["order_id"] for entry in lines(others.stdout)] == ["second"]


# -- replay and drop ----------------------------------------------------------------------------------------------


def test_replay_puts_back_the_named_dead_letters_and_drop_deletes_them(
    cli: Cli, dead_lettered: StoredDeadLetters
) -> None:
    entry_ids = dead_lettered.add(*map(dead_fields, "abcd"))

    replayed = cli.run("dead", "replay", entry_ids[0])
    dropped = cli.run("dead", "drop", "c", "--json")

    assert (replayed.returncode, replayed.stdout) == (0, "replayed 1 dead letter: 1 not_found\n")
    assert dropped.returncode == 0
    assert [each["action"] for each in lines(cli.run("audit", "--json").stdout)] == [
        "dead_letters.drop",
        "dead_letters.replay",
    ]
    assert json.loads(dropped.stdout) == {
        "matched": 1,
        "dropped": 1,
        "gone": 0,
        "reasons": {"not_found": 1},
        "missing": [],
        "dry_run": False,
    }
    assert (dead_lettered.dead, dead_lettered.queued) == (["b", "d"], ["a"])


@pytest.mark.parametrize(("command", "done"), [("replay", "replayed"), ("drop", "dropped")])
def test_a_dry_run_counts_and_changes_nothing(
    cli: Cli, dead_lettered: StoredDeadLetters, command: str, done: str
) -> None:
    dead_lettered.add(dead_fields("a"), dead_fields("b", "rejected"), dead_fields("c"))

    text, as_json = cli.run("dead", command, "--all", "--dry-run"), cli.run("dead", command, "c", "x", "--dry-run", "--json")  # fmt: skip

    assert (text.returncode, text.stderr) == (0, "")
    assert text.stdout == f"would {command} 3 dead letters: 2 not_found, 1 rejected\n"
    assert (as_json.returncode, as_json.stderr) == (1, "no dead letter for x\n")
    assert json.loads(as_json.stdout) == {
        "matched": 1,
        done: 0,
        "gone": 0,
        "reasons": {"not_found": 1},
        "missing": ["x"],
        "dry_run": True,
    }
    assert (dead_lettered.dead, dead_lettered.queued) == (["a", "b", "c"], [])


@pytest.mark.parametrize("command", ["replay", "drop"])
def test_several_dead_letters_are_not_changed_without_confirmation(
    cli: Cli, dead_lettered: StoredDeadLetters, command: str
) -> None:
    dead_lettered.add(dead_fields("a"), dead_fields("b"), dead_fields("c", "rejected"))

    refused = cli.run("dead", command, "--all", stdin="y\n")
    single = cli.run("dead", command, "--reason", "rejected")
    agreed = cli.run("dead", command, "a", "b", "--yes")

    assert_one_line(refused, 2)
    assert "3 dead letters" in refused.stderr
    assert "--yes" in refused.stderr
    assert (single.returncode, agreed.returncode) == (0, 0)
    assert "1 dead letter:" in single.stdout
    assert "2 dead letters:" in agreed.stdout
    assert dead_lettered.dead == []
    assert dead_lettered.queued == (["c", "a", "b"] if command == "replay" else [])


@pytest.mark.parametrize(
    ("answer", "code", "says"),
    [
        (b"y\n", 0, "replayed 2 dead letters"),
        (b"YES\n", 0, "replayed 2 dead letters"),
        (b"n\n", 1, "nothing was changed"),
        (b"\n", 1, "nothing was changed"),
        (b"yo\n", 1, "nothing was changed"),
        (b"\x04", 1, "nothing was changed"),
        (b"\x03", 130, "stopped"),
    ],
)
def test_changing_several_dead_letters_asks_for_confirmation_on_a_terminal(
    cli: Cli, dead_lettered: StoredDeadLetters, answer: bytes, code: int, says: str
) -> None:
    dead_lettered.add(dead_fields("a"), dead_fields("b"))

    ended, written = on_a_terminal(cli, "dead", "replay", "--all", answer=answer)

    assert ended == code, written
    assert "Would replay 2 dead letters: 2 not_found. Continue? [y/N]" in written
    assert says in written
    assert (dead_lettered.dead, dead_lettered.queued) == (([], ["a", "b"]) if code == 0 else (["a", "b"], []))


@pytest.mark.parametrize("command", ["replay", "drop"])
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "--all"),
        (["--yes"], "--reason"),
        (["--all", "--reason", "rejected"], "--all"),
        (["--all", "a"], "--all"),
        (["--reason", "nonsense"], "not_found"),
        (["--since", "yesterday"], "2h"),
        (["--until", ""], "2h"),
        (["--since", "1h", "--until", "2h"], "--until"),
        (["--nonsense"], f"ingest dead {'{command}'} --help"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_invalid_selection_is_one_line_and_exit_code_2(
    cli: Cli, dead_lettered: StoredDeadLetters, command: str, arguments: list[str], expected: str
) -> None:
    dead_lettered.add(dead_fields("a", "rejected"))

    done = cli.run("dead", command, *arguments)

    assert_one_line(done, 2)
    assert expected.replace("{command}", command) in done.stderr
    assert (dead_lettered.dead, dead_lettered.queued) == (["a"], [])


def test_a_replay_ignores_the_backlog_limit(cli: Cli, dead_lettered: StoredDeadLetters) -> None:
    dead_lettered.add_many(dead_fields(f"o-{number}") for number in range(30))

    done = cli.run("dead", "replay", "--all", "--yes", env={"INGEST_BACKLOG_LIMIT": "5"})

    assert (done.returncode, len(dead_lettered.queued)) == (0, 30)


async def test_an_order_that_was_not_found_and_now_exists_is_stored_after_a_replay(
    cli: Cli, redis_url: str, dsn: str, queue_name: str
) -> None:
    async with Scene.open(redis_url, dsn, queue_name) as scene:
        with closing_workers(cli, {"INGEST_UPSTREAM_URL": scene.api.url_template}) as workers:
            await _stored_after_a_replay(cli, scene, workers)


async def _stored_after_a_replay(cli: Cli, scene: Scene, workers: Workers) -> None:
    late = [f"late-{number}" for number in range(10)]
    for order_id in late:
        scene.api.delete_order(order_id)
    await scene.enqueue(*late, "sound")
    workers.start(processes=2, concurrency=5)

    async def dead() -> list[dict[str, str]]:
        return await scene.dead()

    await eventually(lambda: _has(dead, 10))
    before = {letter["order_id"]: letter for letter in await dead()}
    for order_id in late[1:]:
        scene.api.put_order(order_id, document(order_id))
    done = await asyncio.to_thread(cli.run, "dead", "replay", "--reason", "not_found", "--yes")

    assert done.stdout == "replayed 10 dead letters: 10 not_found\n"
    await scene.stored_at_least(10)
    await eventually(lambda: _has(dead, 1))
    await scene.finished()
    rows = await scene.rows()
    assert sorted(rows) == sorted([*late[1:], "sound"])
    for order_id in late[1:]:
        assert rows[order_id]["attempts"] == 1
        assert int(rows[order_id]["enqueued_at"].timestamp() * 1000) == int(before[order_id]["first_enqueued_at"])
    [again] = await dead()
    assert (again["order_id"], again["reason"], again["replays"], again["attempts"]) == (late[0], "not_found", "1", "1")
    assert int(before[late[0]]["dead_at"]) <= int(again["replayed_at"]) <= int(again["dead_at"])
    shown = await asyncio.to_thread(cli.run, "dead", "list", "--json")
    assert [found["replays"] for found in lines(shown.stdout)] == [1]


async def _has(dead: Any, count: int) -> bool:
    return len(await dead()) == count


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["killed", "Ctrl-C"])
def test_an_interrupted_replay_loses_nothing_and_puts_nothing_back_twice(
    cli: Cli, dead_lettered: StoredDeadLetters, number: signal.Signals
) -> None:
    count = 20_000
    names = [f"o-{number}" for number in range(count)]
    dead_lettered.add_many(map(dead_fields, names))
    process = cli.start("dead", "replay", "--all", "--yes")

    eventually_sync(lambda: dead_lettered.redis.xlen(dead_lettered.keys.express) > 0, every=0.005)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=30)
    back, left = dead_lettered.queued, dead_lettered.dead

    assert back + left == names, "each is in one location, in order"
    assert 0 < len(back) < count, "it was interrupted while running"
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert "stopped after" in stderr
        assert "Traceback" not in stderr
    again = cli.run("dead", "replay", "--all", "--yes", "--json")
    assert json.loads(again.stdout)["replayed"] == len(left)
    assert Counter(dead_lettered.queued) == Counter(names)
    assert dead_lettered.dead == []


# -- Redis unavailable, wrong use, help ---------------------------------------------------------------------------


def test_without_a_command_the_help_is_printed(cli: Cli) -> None:
    done = cli.run("dead")

    assert done.returncode == 2
    assert all(f" {command} " in done.stdout for command in COMMANDS)


@pytest.mark.parametrize("where", [0, 1, 2, 3])
def test_debug_works_in_any_position(cli: Cli, where: int) -> None:
    arguments = ("dead", "list", "--since", "yesterday")

    done = cli.run(*arguments[:where], "--debug", *arguments[where:])

    assert done.returncode != 0
    assert "Traceback" in done.stderr
