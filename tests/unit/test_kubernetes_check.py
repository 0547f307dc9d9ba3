"""The check of deploy/kubernetes finds everything that an API server would reject or silently drop."""

from typing import Any

import pytest
from deploy.kubernetes.check import RELEASES, faults


def disruption_budget(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "x"}, "spec": spec}


def scaled_object(**spec: Any) -> dict[str, Any]:
    given = {"scaleTargetRef": {"name": "x"}, "triggers": [{"type": "prometheus", "metadata": {}}], **spec}
    return {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": "x"}, "spec": given}


@pytest.mark.parametrize("right", [disruption_budget(maxUnavailable="25%"), scaled_object(minReplicaCount=0)])
def test_what_is_right_is_no_fault(right: dict[str, Any]) -> None:
    assert faults(right) == []


@pytest.mark.parametrize(
    "wrong",
    [disruption_budget(maxUnavailble=1), disruption_budget(maxUnavailable=[1])],
    ids=["an unknown field", "a wrong type"],
)
def test_a_fault_is_found_for_each_release(wrong: dict[str, Any]) -> None:
    assert [fault.partition(":")[0] for fault in faults(wrong)] == list(RELEASES)


@pytest.mark.parametrize(
    ("wrong", "where"),
    [
        (scaled_object(minReplicas=0), "$.spec"),
        (
            scaled_object(fallback={"failureThreshold": 3, "replicas": 2, "behavior": "none"}),
            "$.spec.fallback.behavior",
        ),
        (scaled_object(advanced={"scalingModifier": {}}), "$.spec.advanced"),
    ],
    ids=["an unknown field", "an unknown value", "an unknown field further down"],
)
def test_a_custom_resource_is_checked_by_its_own_definition(wrong: dict[str, Any], where: str) -> None:
    assert [fault.partition(": ")[0] for fault in faults(wrong)] == [where]


def test_a_kind_that_nobody_knows_is_a_fault() -> None:
    unknown = {"apiVersion": "example.com/v1", "kind": "Unknown", "metadata": {"name": "x"}}

    assert faults(unknown) == [f"{release}: no such resource" for release in RELEASES]
