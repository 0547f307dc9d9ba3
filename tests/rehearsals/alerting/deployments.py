"""The deployments in which alerts are caused: their processes, their rules, and how their Prometheus finds the processes."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_ROOT = Path(__file__).resolve().parents[3]
_DEPLOY = _ROOT / "deploy"
_OVERLAYS = _DEPLOY / "kubernetes" / "overlays"
_OPERATOR = _DEPLOY / "kubernetes" / "components" / "prometheus-operator"
_SCRAPED = re.compile(r"```yaml\n(scrape_configs:\n.*?)```", re.DOTALL)
_POD = "__meta_kubernetes_pod_name"
_CAPITAL = re.compile("[A-Z]")


@dataclass(frozen=True, slots=True)
class Deployment:
    """One deployment.

    Attributes:
        groups: the groups of rules that its Prometheus loads.
        configuration: of its Prometheus, as committed or documented.
        has_exporter: whether `ingest exporter` runs next to workers and the HTTP API.
        name_of_target: the label in which Prometheus discovers the name of a process.
        keeps_targets: whether Prometheus scrapes a process that was stopped, instead of no longer finding it.
    """

    groups: Callable[[], list[Any]]
    configuration: Callable[[], dict[str, Any]]
    has_exporter: bool = False
    name_of_target: str = "instance"
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
        # The operator adds its own labels first.
        added = {"namespace": "order-ingest", "endpoint": endpoint["port"]}
        relabelings = [{"targetLabel": label, "replacement": value} for label, value in added.items()]
        relabelings += [{"sourceLabels": [_POD], "targetLabel": "pod"}, *endpoint["relabelings"]]
        jobs.append(
            {
                "job_name": job,
                "scrape_interval": endpoint["interval"],
                "scrape_timeout": endpoint["scrapeTimeout"],
                "relabel_configs": [
                    {_CAPITAL.sub(lambda found: f"_{found[0].lower()}", key): value for key, value in each.items()}
                    for each in relabelings
                ],
            }
        )
    # The operator's default.
    return {"global": {"evaluation_interval": "30s"}, "scrape_configs": jobs}


def _components(overlay: Path) -> set[str]:
    """The names of all components of an overlay and of the overlays below it."""
    read = yaml.safe_load((overlay / "kustomization.yaml").read_text("utf-8"))
    below = [overlay / each for each in read.get("resources", ()) if (overlay / each / "kustomization.yaml").exists()]
    return {Path(each).name for each in read.get("components", ())}.union(*map(_components, below))


def _overlay(name: str) -> Deployment:
    components = _components(_OVERLAYS / name)
    assert "prometheus-operator" in components, f"Prometheus does not watch the overlay {name}"
    return Deployment(_operator_groups, _of_kubernetes, has_exporter="exporter" in components, name_of_target=_POD)


def _operator_groups() -> list[Any]:
    return list(yaml.safe_load((_OPERATOR / "rules.yaml").read_text("utf-8"))["spec"]["groups"])


DEPLOYMENTS = {
    "compose": Deployment(_committed_groups, _of_compose),
    "systemd": Deployment(_committed_groups, _of_systemd, keeps_targets=True),
    "kubernetes": _overlay("prometheus-operator"),
    # An exporter runs next to workers that an autoscaler may stop.
    "kubernetes-keda": _overlay("keda"),
}
