"""The deployments in which alerts are caused: their processes, their rules, and how their Prometheus finds the processes."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_ROOT = Path(__file__).resolve().parents[3]
_DEPLOY = _ROOT / "deploy"
_OPERATOR = _DEPLOY / "kubernetes" / "components" / "prometheus-operator"
_SCRAPED = re.compile(r"```yaml\n(scrape_configs:\n.*?)```", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Deployment:
    """One deployment.

    Attributes:
        groups: the groups of rules that its Prometheus loads.
        configuration: of its Prometheus, as committed or documented.
        has_exporter: whether `ingest exporter` runs next to workers and the HTTP API.
        keeps_targets: whether Prometheus scrapes a process that was stopped, instead of no longer finding it.
    """

    groups: Callable[[], list[Any]]
    configuration: Callable[[], dict[str, Any]]
    has_exporter: bool = False
    keeps_targets: bool = False

    def alerts(self) -> set[tuple[str, str]]:
        """The name and the severity of each alert."""
        found = [rule for group in self.groups() for rule in group["rules"] if "alert" in rule]
        return {(rule["alert"], rule["labels"]["severity"]) for rule in found}


def _committed_groups() -> list[Any]:
    # Recording rules first.
    files = sorted((_DEPLOY / "prometheus" / "rules").glob("*.yml"), reverse=True)
    return [group for path in files for group in yaml.safe_load(path.read_text("utf-8"))["groups"]]


def _of_compose() -> dict[str, Any]:
    return dict(yaml.safe_load((_DEPLOY / "prometheus" / "prometheus.yml").read_text("utf-8")))


def _of_systemd() -> dict[str, Any]:
    found = _SCRAPED.search((_ROOT / "docs" / "deploy" / "systemd.md").read_text("utf-8"))
    assert found is not None, "the page has no configuration of Prometheus"
    return dict(yaml.safe_load(found[1]))


def _of_kubernetes() -> dict[str, Any]:
    """The configuration that the Prometheus Operator writes for the monitors."""
    jobs = []
    for monitor in yaml.safe_load_all((_OPERATOR / "monitors.yaml").read_text("utf-8")):
        [endpoint] = monitor["spec"].get("podMetricsEndpoints") or monitor["spec"]["endpoints"]
        [job] = [each["replacement"] for each in endpoint["relabelings"] if each["targetLabel"] == "job"]
        jobs.append({"job_name": job, "scrape_interval": endpoint["interval"]})
    return {"scrape_configs": jobs}


def _operator_groups() -> list[Any]:
    return list(yaml.safe_load((_OPERATOR / "rules.yaml").read_text("utf-8"))["spec"]["groups"])


DEPLOYMENTS = {
    "compose": Deployment(_committed_groups, _of_compose),
    "systemd": Deployment(_committed_groups, _of_systemd, keeps_targets=True),
    # The overlays with KEDA, which can stop all workers, contain the exporter.
    "kubernetes": Deployment(_operator_groups, _of_kubernetes, has_exporter=True),
}
