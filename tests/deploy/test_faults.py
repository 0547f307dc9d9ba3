"""No order is lost when a container is killed, stopped or restarted."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING
from urllib.error import URLError

import pytest

from deploy.project import DEAD, DEMO_ORDERS, samples
from deploy.shell import say, saying, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from deploy.engine import Docker
    from deploy.project import Container, Project

# More orders than four workers of two processes have slots for, and the seconds of a request.
_BATCH = 1_000
_SLOW = "4"
_USUAL = "0.1-0.2"
_RECOVERED = 30.0
_batches = count()


@dataclass(frozen=True)
class Moment:
    """All workers have filled their slots and wait for the slow external API.

    Attributes:
        announced: the orders of this batch.
        victim: one of the workers.
        held: number of the victim's orders.
    """

    announced: list[str]
    victim: Container
    held: float


@pytest.fixture
def busy(system: Project) -> Iterator[Callable[[], Moment]]:
    """Creates such a moment. The API is fast again afterwards."""

    def brought_about() -> Moment:
        announced = samples(DEMO_ORDERS + next(_batches) * _BATCH, _BATCH)
        workers = system.containers("worker")
        system.set_upstream(latency=_SLOW)
        done = system.ingest("enqueue", "--quiet", "-", stdin="\n".join(announced))
        assert done.code == 0, done.err
        victim = workers[-1]
        wait_for("a worker has orders in flight", lambda: _in_flight(victim), within=20)
        return Moment(announced, victim, _in_flight(victim))

    yield brought_about
    system.set_upstream(latency=_USUAL)


def _in_flight(worker: Container) -> float:
    try:
        return worker.metric("ingest_in_flight")
    except URLError:  # it starts
        return 0.0


def test_what_a_killed_worker_had_in_flight_is_stored_by_others(
    docker: Docker, system: Project, busy: Callable[[], Moment]
) -> None:
    moment = busy()

    docker("kill", moment.victim.id)
    system.set_upstream(latency=_USUAL)
    took = system.wait_until_stored(moment.announced, within=_RECOVERED)

    say(f"a worker was killed with {moment.held:.0f} of {_BATCH} orders in flight; all were stored {took:.1f} s later")
    workers = system.containers("worker")
    assert sum(worker.metric("ingest_redeliveries_total", reason="dead_consumer") for worker in workers) > 0
    assert moment.victim.state["ExitCode"] == 128 + signal.SIGKILL
    docker("start", moment.victim.id)


def test_a_worker_that_is_stopped_releases_everything_in_time(
    docker: Docker, system: Project, busy: Callable[[], Moment]
) -> None:
    moment = busy()

    with saying(f"a worker was stopped with {moment.held:.0f} orders in flight"):
        docker("stop", "--time", "40", moment.victim.id)
    system.set_upstream(latency=_USUAL)
    took = system.wait_until_stored(moment.announced, within=_RECOVERED)

    say(f"all orders were stored {took:.1f} s later")
    assert moment.victim.state["ExitCode"] == 0
    docker("start", moment.victim.id)


def test_a_worker_that_crashes_is_started_again_and_goes_on(system: Project, busy: Callable[[], Moment]) -> None:
    moment = busy()
    victim = moment.victim

    os.kill(victim.state["Pid"], signal.SIGKILL)
    wait_for("it runs again", lambda: victim.facts["RestartCount"] == 1 and victim.state["Running"], within=20)
    system.set_upstream(latency=_USUAL)
    took = system.wait_until_stored(moment.announced, within=_RECOVERED)

    say(
        f"a worker crashed with {moment.held:.0f} orders in flight, and was started again; all were stored {took:.1f} s later"
    )


@pytest.mark.parametrize("server", ["redis", "postgres"])
def test_a_server_that_restarts_loses_nothing(system: Project, busy: Callable[[], Moment], server: str) -> None:
    moment = busy()
    if server == "redis":  # its log of denials is lost
        assert system.refused_commands() == []

    system.compose("restart", server)
    (container,) = system.containers(server)
    wait_for(f"{server} is healthy", lambda: container.state["Health"]["Status"] == "healthy", within=30)
    system.set_upstream(latency=_USUAL)
    took = system.wait_until_stored(moment.announced, within=_RECOVERED)

    assert "CRITICAL" not in system.docker("logs", container.id)
    say(f"{server} was restarted; all orders were stored {took:.1f} s after it was healthy")


def test_nothing_is_left_in_the_queue(system: Project) -> None:
    with system.redis() as redis:
        wait_for("the queue is empty", lambda: redis.xlen("ingest:{orders}:stream") == 0, within=20)
        wait_for("no retry is due", lambda: redis.zcard("ingest:{orders}:retry") == 0, within=20)
        assert redis.xlen(DEAD) == 0
    assert system.query("SELECT count(*) FROM orders")[0][0] == DEMO_ORDERS + next(_batches) * _BATCH
