"""Writes components/prometheus-operator/rules.yaml from the rule files that Docker Compose has: `python deploy/kubernetes/generate.py`.

With `--check` it writes nothing, and fails if the file is not current.
"""

import sys
from pathlib import Path

import yaml

HERE = Path(__file__).parent
RULES = HERE.parent / "prometheus" / "rules"
TARGET = HERE / "components" / "prometheus-operator" / "rules.yaml"
_HEADER = "# Made by `make kubernetes-rules` from deploy/prometheus/rules, where the comments are: do not edit.\n"


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


def main(arguments: list[str]) -> int:
    """The exit code is 1 if the file was to be checked and is not current."""
    made = prometheus_rule()
    if arguments == ["--check"]:
        if not TARGET.exists() or TARGET.read_text(encoding="utf-8") != made:
            sys.stderr.write(f"{TARGET} is not current: run `make kubernetes-rules`\n")
            return 1
        return 0
    TARGET.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
