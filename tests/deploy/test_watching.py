"""The queries of the dashboard and the rules return results after some activity."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from deploy.queries import check
from deploy.shell import saying, wait_for
from deploy.stage import STAGE
from deploy.test_api_in_containers import announce

if TYPE_CHECKING:
    import pytest

    from deploy.engine import Docker
    from deploy.project import Project


def test_prometheus_and_alertmanager_find_no_fault_with_what_they_are_given(docker: Docker, system: Project) -> None:
    (prometheus,) = system.containers("prometheus")
    (alertmanager,) = system.containers("alertmanager")

    docker("exec", prometheus.id, "promtool", "check", "config", "/etc/prometheus/prometheus.yml")
    docker("exec", alertmanager.id, "amtool", "check-config", "/etc/alertmanager/alertmanager.yml")
    with saying("ran the unit tests of the rules"):
        # In a container without the service's limit, because each test creates a database.
        files = ("--volume", f"{system.tree}/deploy/prometheus:/etc/prometheus:ro", "--tmpfs", "/tmp")
        command = ("-c", "promtool test rules /etc/prometheus/tests/*.yml")
        docker(
            "run", "--rm", "--network=none", *files, "--entrypoint=sh", prometheus.facts["Config"]["Image"], *command
        )


def has_seen_requests(system: Project) -> bool:
    """Send another request and query Prometheus. The last point of a panel may be some seconds old."""
    announce(system, "ingest_none")
    rate = quote("sum(rate(ingest_api_request_seconds_count[1m] offset 20s)) > 0")
    return bool(system.ask_prometheus(f"query?query={rate}")["result"])


def test_every_query_of_the_dashboard_and_the_rules_has_an_answer(system: Project, pytestconfig: pytest.Config) -> None:
    plots = pytestconfig.stash[STAGE].plots
    # Between two scrapes, because Prometheus cannot compute a rate from a counter's first scrape.
    wait_for("Prometheus has seen requests to the HTTP API", lambda: has_seen_requests(system), within=90, every=1)

    with saying("asked everything that the dashboard and the rules ask"):
        problems = check(system.prometheus, plots)

    assert not problems, "\n".join(problems)
