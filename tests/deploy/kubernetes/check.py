"""Checks deploy/kubernetes: `python check.py`, by `make lint` if kubectl is at hand, by `make kubernetes` always.

`kubectl kustomize` must build each overlay without a warning. Every resource must be valid, without unknown fields, for
each release of Kubernetes from 1.30 on, and for the definitions of KEDA and the Prometheus Operator, see
crds/README.md. Critical results of kube-score are errors. The exceptions are in the manifests, with their reasons.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
OVERLAYS = ROOT / "deploy" / "kubernetes" / "overlays"
RELEASES = tuple(f"1.{minor}" for minor in range(30, 37))


class Faulty(Exception):
    """A line for each error."""


def main() -> int:
    """The exit code is 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--if-at-hand", action="store_true", help="do nothing if there is no kubectl")
    parser.add_argument("--kubectl", default="kubectl", help="the program")
    parser.add_argument("--kube-score", default="kube-score", help="the program; left out if it is not there")
    given = parser.parse_args()
    kubectl, kube_score = shutil.which(given.kubectl), shutil.which(given.kube_score)
    if kubectl is None:
        sys.stdout.write("no kubectl: left out, `make kubernetes` gets it\n" if given.if_at_hand else "no kubectl\n")
        return 0 if given.if_at_hand else 1
    problems = [problem for overlay in overlays() for problem in _problems(overlay, kubectl, kube_score)]
    sys.stdout.write("".join(f"{problem}\n" for problem in problems))
    if not problems:
        left_out = "" if kube_score else "; kube-score is not there and was left out"
        names = ", ".join(overlay.name for overlay in overlays())
        sys.stdout.write(f"{names}: valid for Kubernetes {RELEASES[0]} to {RELEASES[-1]}{left_out}\n")
    return 1 if problems else 0


def overlays() -> list[Path]:
    """The folders that can be applied."""
    return sorted(path.parent for path in OVERLAYS.glob("*/kustomization.yaml"))


def built(overlay: Path, kubectl: str) -> str:
    """The resources that `kubectl apply -k` would apply.

    Raises:
        Faulty: the build fails or causes a warning.
    """
    done = subprocess.run([kubectl, "kustomize", str(overlay)], capture_output=True, text=True, check=False, timeout=60)
    if done.returncode or done.stderr:
        raise Faulty(f"{overlay.name}: {done.stderr.strip()}")
    return done.stdout


def faults(resource: dict[str, Any]) -> list[str]:
    """The violations of the schema of a resource in any release."""
    import jsonschema  # noqa: PLC0415  takes a second, which most runs of the unit tests need not wait for
    import kubernetes_validate  # noqa: PLC0415  as above

    schema = _definitions().get((resource["apiVersion"], resource["kind"]))
    if schema is not None:
        validator = jsonschema.Draft202012Validator(schema)
        return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(resource)]
    found = []
    for release in RELEASES:
        try:
            kubernetes_validate.validate(resource, release, strict=True)
        except kubernetes_validate.SchemaNotFoundError:
            found.append(f"{release}: no such resource")
        except kubernetes_validate.ValidationError as error:
            found.append(f"{release}: {error}")
    return found


@cache
def _faults_of(resource: str) -> list[str]:
    """Like `faults`, for a resource as JSON. Most resources are in several overlays."""
    return faults(json.loads(resource))


def _problems(overlay: Path, kubectl: str, kube_score: str | None) -> list[str]:
    try:
        text = built(overlay, kubectl)
    except Faulty as error:
        return [str(error)]
    named = [(f"{each['kind']}/{each['metadata']['name']}", each) for each in yaml.safe_load_all(text)]
    found = [
        f"{overlay.name}: {name}: {fault}" for name, resource in named for fault in _faults_of(json.dumps(resource))
    ]
    return found + [f"{overlay.name}: {line}" for line in (_critical(text, kube_score) if kube_score else ())]


def _critical(text: str, kube_score: str) -> list[str]:
    """The critical results of kube-score."""
    done = subprocess.run(
        [kube_score, "score", "--output-format", "ci", "--kubernetes-version", f"v{RELEASES[0]}", "-"],
        input=text, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("[CRITICAL]")]
    return lines or ([done.stderr.strip()] if done.returncode else [])


@cache
def _definitions() -> dict[tuple[str, str], dict[str, Any]]:
    """The schemas of custom resources, which allow no further fields."""
    found = {}
    for path in HERE.glob("crds/*.yaml"):
        for definition in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            spec = definition["spec"]
            for version in spec["versions"]:
                schema = version["schema"]["openAPIV3Schema"]
                # An API server adds the fields of all resources.
                schema["properties"]["metadata"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                found[f"{spec['group']}/{version['name']}", spec["names"]["kind"]] = _closed(schema)
    return found


def _closed(schema: Any) -> Any:
    """The schema, with no further fields wherever it lists some."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _closed(value) for name, value in schema.items()}
    lists_fields = isinstance(schema.get("properties"), dict) and schema.get("type") == "object"
    if lists_fields and not schema.get("x-kubernetes-preserve-unknown-fields"):
        closed.setdefault("additionalProperties", False)
    return closed


if __name__ == "__main__":
    sys.exit(main())
