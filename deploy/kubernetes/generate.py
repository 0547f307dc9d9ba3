"""Writes the files of components that come from deploy/prometheus and deploy/redis: `python deploy/kubernetes/generate.py`.

kustomize reads no files outside of a component. The rules go to components/prometheus-operator/rules.yaml, and the copies of deploy/redis
to components/redis-cluster/files. With `--check`, the script only compares the files, and fails if one is not current.
"""

import sys
from pathlib import Path

import yaml

HERE = Path(__file__).parent
RULES = HERE.parent / "prometheus" / "rules"
TARGET = HERE / "components" / "prometheus-operator" / "rules.yaml"
REDIS = HERE.parent / "redis"
COPIES = HERE / "components" / "redis-cluster" / "files"
_NOT_COPIED = {"cluster.env"}
_HEADER = (
    "# Written by `make kubernetes-rules` from deploy/prometheus/rules, which contains the comments. Do not edit.\n"
)


def prometheus_rule() -> str:
    """The rule files as one PrometheusRule."""
    groups = []
    for path in sorted(RULES.glob("*.yml")):
        groups += yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
    resource = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "order-ingest", "labels": {"app.kubernetes.io/name": "order-ingest"}},
        "spec": {"groups": groups},
    }
    return _HEADER + yaml.safe_dump(resource, sort_keys=False, allow_unicode=True, width=130)


def wanted() -> dict[Path, str]:
    """The content of each file."""
    copies = {
        COPIES / path.name: path.read_text(encoding="utf-8") for path in REDIS.iterdir() if path.name not in _NOT_COPIED
    }
    return {TARGET: prometheus_rule()} | copies


def main(arguments: list[str]) -> int:
    """Write or check the files. Return 1 if a checked file is not current."""
    for path, content in wanted().items():
        if arguments != ["--check"]:
            path.write_text(content, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != content:
            sys.stderr.write(f"{path} is not current: run `make kubernetes-rules`\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
