"""The manifests of deploy/kubernetes match the settings and the rules. `make kubernetes` validates the manifests."""

import math
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from ingest.process.supervisor import KILL_MARGIN
from ingest.settings import PREFIX, Settings

ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "deploy" / "kubernetes"
MANIFESTS = sorted(path for path in KUBERNETES.rglob("*.yaml") if path.name != "kustomization.yaml")
LATENCY = "order-ingest.example/upstream-latency-seconds"


@cache
def all_resources() -> list[dict[str, Any]]:
    return [each for path in MANIFESTS for each in yaml.safe_load_all(path.read_text(encoding="utf-8"))]


def resources(*kinds: str) -> list[dict[str, Any]]:
    """All resources of these kinds, patches included."""
    return [each for each in all_resources() if each["kind"] in kinds]


def pods() -> dict[str, dict[str, Any]]:
    """The pods of all workloads, by name."""
    workloads = resources("Deployment", "Job", "StatefulSet")
    return {each["metadata"]["name"]: each["spec"]["template"]["spec"] for each in workloads}


def settings_of(*files: str) -> dict[str, str]:
    """The variables of .env files, the later ones first."""
    lines = [line for file in files for line in (KUBERNETES / file).read_text(encoding="utf-8").splitlines()]
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


PRODUCTION = settings_of("base/common.env", "overlays/production/common.env", "overlays/production/worker.env")


def workers_that_can_be_fed(latency: float) -> int:
    """As in docs/deploy/kubernetes.md, the API's limit of orders in flight divided by a worker's limit."""
    each = int(PRODUCTION["INGEST_CONCURRENCY"]) * int(PRODUCTION["INGEST_PROCESSES"])
    in_flight = min(
        float(PRODUCTION["INGEST_UPSTREAM_CONCURRENCY"]), float(PRODUCTION["INGEST_UPSTREAM_RATE"]) * latency
    )
    return math.ceil(in_flight / each)


def test_the_rules_and_the_files_of_redis_are_those_of_docker_compose() -> None:
    generated = [sys.executable, str(KUBERNETES / "generate.py"), "--check"]
    checked = subprocess.run(generated, capture_output=True, text=True, check=False, timeout=60)

    assert (checked.returncode, checked.stderr) == (0, "")


def test_no_autoscaler_starts_more_workers_than_the_external_api_can_feed() -> None:
    [keda] = [each for each in resources("ScaledObject") if "maxReplicaCount" in each["spec"]]
    [hpa] = resources("HorizontalPodAutoscaler")

    most = workers_that_can_be_fed(float(keda["metadata"]["annotations"][LATENCY]))

    assert [keda["spec"]["maxReplicaCount"], hpa["spec"]["maxReplicas"]] == [most, most]
    assert keda["spec"]["fallback"]["replicas"] <= most


def test_the_query_of_keda_is_that_of_the_recording_rule() -> None:
    [keda] = [each for each in resources("ScaledObject") if "maxReplicaCount" in each["spec"]]
    [trigger] = keda["spec"]["triggers"]
    rules = yaml.safe_load((KUBERNETES.parent / "prometheus" / "rules" / "recording.yml").read_text(encoding="utf-8"))
    recorded = {rule["record"]: rule["expr"] for group in rules["groups"] for rule in group["rules"]}

    each = recorded["job_source_stream:ingest_queue_work:max"].replace(
        "by (job, source, stream)", "by (source, stream)"
    )
    expected = f"sum({each})"

    query = re.sub(r"\{[^}]*\}", "", trigger["metadata"]["query"])
    assert str(promql_parser.parse(query)) == str(promql_parser.parse(expected))
    # One order starts a worker, and an answer without a sample is a fault.
    assert trigger["metadata"]["activationThreshold"] == "0"
    assert trigger["metadata"]["ignoreNullValues"] == "false"


@pytest.mark.parametrize("name", sorted(pods()))
def test_the_service_of_the_api_sets_no_setting(name: str) -> None:
    """A Service named order-ingest-api sets variables. A Service named ingest-api would set INGEST_API_PORT."""
    assert pods()[name]["enableServiceLinks"] is False
    assert pods()[name]["automountServiceAccountToken"] is False


@pytest.mark.parametrize("name", ["order-ingest-worker", "order-ingest-api"])
def test_a_pod_is_killed_only_after_its_processes_would_be(name: str) -> None:
    pod = pods()[name]
    pause = pod["containers"][0].get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)

    needed = pause + float(PRODUCTION["INGEST_SHUTDOWN_GRACE"]) + KILL_MARGIN

    assert pod["terminationGracePeriodSeconds"] >= needed


@pytest.mark.parametrize("path", sorted(KUBERNETES.rglob("*.env")), ids=lambda path: str(path.relative_to(KUBERNETES)))
def test_each_variable_is_a_setting_and_none_is_a_secret(path: Path) -> None:
    known = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}

    given = settings_of(str(path.relative_to(KUBERNETES)))

    assert given.keys() <= known
    assert [name for name, value in given.items() if re.search(r"://[^/@]*:[^/@]*@", value)] == []


def test_the_ingress_publishes_webhooks_only() -> None:
    [ingress] = resources("Ingress")

    paths = [(each["path"], each["pathType"]) for rule in ingress["spec"]["rules"] for each in rule["http"]["paths"]]

    assert paths == [("/v1/webhooks/", "Prefix")]


def test_each_container_runs_with_the_least_rights() -> None:
    for name, pod in pods().items():
        [container] = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, name


@pytest.mark.parametrize(
    ("setting", "holder"),
    [("INGEST_CONSOLE_SECRET", "order-ingest-api"), ("INGEST_UPSTREAM_TOKEN", "order-ingest-worker")],
)
def test_a_secret_that_the_page_names_is_a_file_of_the_pods_that_use_it(setting: str, holder: str) -> None:
    page = (ROOT / "docs" / "deploy" / "kubernetes.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```yaml\n(patches:.*?)^```", page, re.MULTILINE | re.DOTALL)
    [example] = [each for each in examples if setting in each]
    [patch] = yaml.safe_load(example)["patches"]
    [added] = yaml.safe_load(patch["patch"])

    pod = pods()[patch["target"]["name"]]
    mounted = {each["mountPath"]: each["name"] for each in pod["containers"][0]["volumeMounts"]}
    volumes = {each["name"]: each.get("secret") for each in pod["volumes"]}

    assert added["op"] == "add"
    assert added["path"] == "/spec/template/spec/containers/0/env/-"
    assert added["value"]["name"].removesuffix("_FILE") == setting
    secret = volumes[mounted[str(Path(added["value"]["value"]).parent)]]
    assert secret["secretName"] == holder
    assert "items" not in secret  # all keys are files
