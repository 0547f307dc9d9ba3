"""The commands of operators in containers of the image."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from deploy.project import DEAD, DEMO_ORDERS
from deploy.shell import wait_for

if TYPE_CHECKING:
    from deploy.project import Project

_UNKNOWN = [f"no-such-order-{number}" for number in range(5)]


def test_status_and_health(system: Project) -> None:
    status = system.ingest("status", "--json")
    health = system.ingest("health")

    assert json.loads(status.out)["orders"]["stored"] == DEMO_ORDERS, status.err
    assert len(json.loads(status.out)["consumers"]) == 2 * len(system.containers("worker"))
    assert (health.code, health.out) == (0, "ok\n")


def test_config_shows_no_secret(system: Project) -> None:
    shown = [system.ingest("config"), system.ingest("config", "--json")]

    for done in shown:
        assert done.code == 0, done.err
        assert "***" in done.out
        for name in ("redis_password", "postgres_password"):
            assert system.secret(name) not in done.out + done.err


def test_dead_letters_are_listed_shown_exported_replayed_and_dropped(system: Project) -> None:
    announced = system.ingest("enqueue", "--json", *_UNKNOWN)
    with system.redis() as redis:
        wait_for("they are dead letters", lambda: redis.xlen(DEAD) == len(_UNKNOWN), within=20)

    listed = system.ingest("dead", "list", "--json")
    shown = system.ingest("dead", "show", _UNKNOWN[0])
    exported = system.ingest("dead", "export")
    replayed = system.ingest("dead", "replay", "--reason", "not_found", "--yes", "--json")
    with system.redis() as redis:
        wait_for("they are dead letters again", lambda: redis.xlen(DEAD) == len(_UNKNOWN), within=20)
    dropped = system.ingest("dead", "drop", "--all", "--yes", "--json")

    results = [announced, listed, shown, exported, replayed, dropped]
    assert [done.code for done in results] == [0] * 6, [done.err for done in results]
    assert json.loads(announced.out)["accepted"] == len(_UNKNOWN)
    assert {json.loads(line)["order_id"] for line in listed.out.splitlines()} == set(_UNKNOWN)
    assert "HTTP 404" in shown.out
    assert {json.loads(line)["order_id"] for line in exported.out.splitlines()} == set(_UNKNOWN)
    assert json.loads(replayed.out)["replayed"] == len(_UNKNOWN)
    assert json.loads(dropped.out)["dropped"] == len(_UNKNOWN)


def test_migrating_again_changes_nothing(system: Project) -> None:
    done = system.attempt("run", "--rm", "--no-TTY", "--no-deps", "migrate")

    assert done.code == 0, done.err
    assert "applied" not in done.out


def test_redis_has_refused_them_no_command(system: Project) -> None:
    assert system.refused_commands() == []
