"""The system comes up, and does its work with no more rights than it needs."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from deploy.project import DEAD, DEMO_ORDERS, DEMO_RATE, WORKERS, samples
from deploy.shell import say, wait_for

if TYPE_CHECKING:
    from deploy.engine import Docker
    from deploy.project import Container, Project


def test_every_service_is_healthy(system: Project) -> None:
    healthy = {one.id: one.state.get("Health", {}).get("Status") for one in system.containers()}
    (migrate,) = system.containers("migrate", all_states=True)
    (producer,) = system.containers("producer", all_states=True)
    healthy.pop(producer.id, None)

    assert set(healthy.values()) == {"healthy"}
    assert migrate.state["ExitCode"] == 0
    assert len(system.containers("worker")) == WORKERS


def test_no_process_is_roots(system: Project) -> None:
    users = {(one.service, row.split()[0]) for one in system.containers() for row in one.processes()}

    expected = {"redis": "999", "postgres": "999", "prometheus": "65534", "alertmanager": "65534"}
    assert {service for service, _ in users} >= {
        "redis",
        "postgres",
        "worker",
        "api",
        "upstream",
        "prometheus",
        "alertmanager",
    }
    assert users == {(service, expected.get(service, "10001")) for service, _ in users}


def test_no_container_has_more_rights_than_it_needs(system: Project) -> None:
    for container in system.containers():
        host = container.facts["HostConfig"]
        assert host["ReadonlyRootfs"], container.service
        assert host["CapDrop"] == ["ALL"], container.service
        assert not host["CapAdd"], container.service
        assert host["SecurityOpt"] == ["no-new-privileges:true"], container.service
        assert host["Memory"], container.service


def test_nothing_is_written_outside_of_volumes(docker: Docker, system: Project) -> None:
    one_of_each = {one.service: one for one in system.containers()}

    written = {service: _written(docker, container) for service, container in one_of_each.items()}

    assert not any(written.values()), written


def _written(docker: Docker, container: Container) -> list[str]:
    """The changes in a container's own filesystem, except for mount points."""
    facts = container.facts
    mounts = [PurePosixPath(mount["Destination"]) for mount in facts["Mounts"]]
    mounts += [PurePosixPath(path.replace("/var/run", "/run")) for path in facts["HostConfig"].get("Tmpfs", {})]
    changed = [PurePosixPath(line[2:]) for line in docker("diff", container.id).splitlines()]
    return [str(path) for path in changed if not any(mount.is_relative_to(path) for mount in mounts)]


def test_ports_are_published_on_the_loopback_only(system: Project) -> None:
    bindings = [
        binding
        for one in system.containers()
        for published in one.facts["NetworkSettings"]["Ports"].values()
        for binding in published or []
    ]

    assert {binding["HostIp"] for binding in bindings} == {"127.0.0.1"}
    assert len(bindings) == 5


def test_prometheus_scrapes_every_worker_and_knows_the_rules(system: Project) -> None:
    took = wait_for("all workers are scraped", lambda: len(set(_up(system, "ingest"))) == WORKERS, within=45, every=0.5)

    say(f"Prometheus had all {WORKERS} workers after another {took:.1f} s")
    wait_for("the rules were evaluated", lambda: _health_of_rules(system) == {"ok"}, within=30, every=0.5)
    assert _up(system, "alertmanager") == ["alertmanager:9093"]
    managers = system.ask_prometheus("alertmanagers")["activeAlertmanagers"]
    assert [manager["url"] for manager in managers] == ["http://alertmanager:9093/api/v2/alerts"]


def test_prometheus_scrapes_the_api(system: Project) -> None:
    wait_for("the API is scraped", lambda: len(_up(system, "ingest-api")) == 1, within=45, every=0.5)


def _up(system: Project, job: str) -> list[str]:
    targets = system.ask_prometheus("targets")["activeTargets"]
    return [one["labels"]["instance"] for one in targets if one["labels"]["job"] == job and one["health"] == "up"]


def _health_of_rules(system: Project) -> set[str]:
    return {rule["health"] for group in system.ask_prometheus("rules")["groups"] for rule in group["rules"]}


def test_all_orders_of_the_demo_are_stored(system: Project) -> None:
    announced = samples(0, DEMO_ORDERS)

    took = system.wait_until_stored(announced, within=DEMO_ORDERS / DEMO_RATE + 30)

    say(f"{DEMO_ORDERS:,} orders were stored after another {took:.1f} s")
    assert system.query("SELECT count(*) FROM orders")[0][0] == DEMO_ORDERS
    with system.redis() as redis:
        wait_for("the queue is empty", lambda: redis.xlen("ingest:{orders}:stream") == 0, within=10)
        assert redis.xlen(DEAD) == 0
    (producer,) = system.containers("producer", all_states=True)
    wait_for("the producer has ended", lambda: producer.state["Status"] == "exited", within=10)
    assert (producer.state["ExitCode"], producer.facts["RestartCount"]) == (0, 0)


def test_every_worker_took_part(system: Project) -> None:
    stored = [int(worker.metric("ingest_orders_total", outcome="stored")) for worker in system.containers("worker")]

    say(f"the workers stored {stored}")
    assert len(stored) == WORKERS
    assert all(stored)
    assert sum(stored) == DEMO_ORDERS


def test_redis_has_refused_the_service_no_command(system: Project) -> None:
    assert system.refused_commands() == []
