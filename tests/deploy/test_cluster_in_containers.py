"""The system with the Redis Cluster of six nodes: it is created once, and loses no order with a node or with all addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from deploy.project import DEMO_ORDERS, DEMO_RATE, samples
from deploy.shell import say, saying, wait_for

if TYPE_CHECKING:
    from deploy.engine import Docker
    from deploy.project import Container, Project

NODES = [f"redis-{number}" for number in range(1, 7)]
_BATCH = 300
# The last of the 10,000 sample orders, which no other chapter uses.
_FIRST = 10_000 - 3 * _BATCH
_RECOVERED = 60.0


@pytest.fixture(scope="module")
def cluster(system: Project) -> Project:
    """The system on the cluster. The demo's producer announces its orders again."""
    system.use_cluster()
    with saying("the cluster is there, and everything is healthy"):
        system.up()
    return system


def stored_again(cluster: Project, number: int) -> float:
    """Enqueue a batch, and return the seconds until it is stored."""
    announced = samples(_FIRST + number * _BATCH, _BATCH)
    wait_for(
        "a batch is enqueued",
        lambda: cluster.ingest("enqueue", "--quiet", "-", stdin="\n".join(announced)).code == 0,
        within=_RECOVERED,
    )
    return cluster.wait_until_stored(announced, within=_RECOVERED)


def admin(cluster: Project, node: str, *command: str) -> str:
    """The reply of a node to a command of its administrator."""
    script = 'REDISCLI_AUTH=$(cat /run/secrets/redis_admin_password) redis-cli --user admin "$@"'
    return cluster.compose("exec", "--no-TTY", node, "sh", "-c", script, "sh", *command)


def node_of(cluster: Project, name: str) -> Container:
    (container,) = cluster.containers(name)
    return container


def health_of(cluster: Project, name: str) -> str:
    return str(node_of(cluster, name).state["Health"]["Status"])


def test_three_primaries_and_three_replicas_serve_the_orders(cluster: Project) -> None:
    (created,) = cluster.containers("redis-cluster", all_states=True)
    roles = [admin(cluster, name, "role").split()[0] for name in NODES]

    assert created.state["ExitCode"] == 0
    assert sorted(roles) == ["master"] * 3 + ["slave"] * 3
    took = cluster.wait_until_stored(samples(0, DEMO_ORDERS), within=DEMO_ORDERS / DEMO_RATE + 30)
    say(f"{DEMO_ORDERS:,} orders were stored after another {took:.1f} s")
    stored_again(cluster, 0)


def test_a_killed_primary_is_replaced_and_returns_as_a_replica(docker: Docker, cluster: Project) -> None:
    owner = next(name for name in NODES if "MOVED" not in admin(cluster, name, "xlen", "ingest:{orders}:stream"))
    killed = node_of(cluster, owner)

    docker("kill", killed.id)
    took = stored_again(cluster, 1)
    docker("start", killed.id)
    wait_for("it is healthy", lambda: health_of(cluster, owner) == "healthy", within=_RECOVERED)

    say(f"{owner} was killed; orders were enqueued and stored after {took:.1f} s")
    assert admin(cluster, owner, "role").split()[0] == "slave"


def test_all_nodes_find_each_other_after_a_restart_with_other_addresses(cluster: Project) -> None:
    before = [node_of(cluster, name).address for name in NODES]

    cluster.compose("stop", *NODES)
    # In the opposite order, so that they get other addresses.
    for name in reversed(NODES):
        cluster.compose("start", name)
    wait_for("they are healthy", lambda: {health_of(cluster, name) for name in NODES} == {"healthy"}, within=120)
    took = stored_again(cluster, 2)

    say(f"addresses were {before}; orders were stored {took:.1f} s after all nodes were healthy")


def test_the_nodes_have_denied_the_service_no_command(cluster: Project) -> None:
    assert {admin(cluster, name, "acl", "log").strip() for name in NODES} == {""}
