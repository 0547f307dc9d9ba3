"""Reads the parameters of the rehearsal of autoscaling from deploy/kubernetes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from rehearsals.scale.control_groups import MIB, Limits
from rehearsals.scale.scaler import Rules

_DEPLOY = Path(__file__).parents[3] / "deploy" / "kubernetes"


def rules(most: int = 0) -> Rules:
    """The settings of the ScaledObject, optionally with another maximum number of workers."""
    manifest = _read("components/keda/scaledobject.yaml")
    found = Rules.parse(manifest)
    return replace(found, most=most) if most else found


def limits_of_worker() -> Limits:
    """The limits of a worker's container."""
    (container,) = _read("base/worker/worker.yaml")["spec"]["template"]["spec"]["containers"]
    limits = container["resources"]["limits"]
    return Limits(float(limits["cpu"]), int(limits["memory"].removesuffix("Mi")) * MIB)


def settings_of_all() -> dict[str, str]:
    """The settings of all pods."""
    lines = (_DEPLOY / "base/common.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and line[0] != "#")


def _read(path: str) -> Any:
    return next(document for document in yaml.safe_load_all((_DEPLOY / path).read_text()) if document)
