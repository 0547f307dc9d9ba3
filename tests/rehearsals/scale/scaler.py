"""Decides the number of workers from our ScaledObject, like KEDA and Kubernetes' HorizontalPodAutoscaler.

KEDA starts the first worker and stops the last one (https://keda.sh/docs/2.14/concepts/scaling-deployments/). In
between, the autoscaler divides the query's result by the threshold, and applies its tolerance, stabilization windows
and policies (https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/). The caller passes the time.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Self

TOLERANCE = 0.1
SYNC_PERIOD = 15.0
"""Seconds between two decisions of the autoscaler. Both values are Kubernetes' defaults."""


@dataclass(frozen=True, slots=True)
class Direction:
    """One half of `behavior`: seconds to look back, and policies as (type, value, seconds)."""

    window: float
    policies: tuple[tuple[str, int, float], ...]

    @classmethod
    def parse(cls, rules: Mapping[str, Any]) -> Self:
        """Read it from the manifest, where `selectPolicy` is Max."""
        if rules.get("selectPolicy", "Max") != "Max":
            raise ValueError("only selectPolicy: Max is rehearsed")
        policies = ((rule["type"], int(rule["value"]), float(rule["periodSeconds"])) for rule in rules["policies"])
        return cls(float(rules["stabilizationWindowSeconds"]), tuple(policies))


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings of the ScaledObject.

    Attributes:
        polling: KEDA's polling interval in seconds while no worker runs.
        cooldown: seconds without work until the last worker is stopped.
    """

    query: str
    threshold: float
    activation: float
    least: int
    most: int
    polling: float
    cooldown: float
    up: Direction
    down: Direction

    @classmethod
    def parse(cls, manifest: Mapping[str, Any]) -> Self:
        """Read them from a ScaledObject with one Prometheus trigger."""
        spec = manifest["spec"]
        (trigger,) = spec["triggers"]
        behaviour = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
        return cls(
            trigger["metadata"]["query"],
            float(trigger["metadata"]["threshold"]),
            float(trigger["metadata"]["activationThreshold"]),
            spec["minReplicaCount"],
            spec["maxReplicaCount"],
            float(spec["pollingInterval"]),
            float(spec["cooldownPeriod"]),
            Direction.parse(behaviour["scaleUp"]),
            Direction.parse(behaviour["scaleDown"]),
        )


@dataclass(slots=True)
class Scaler:
    """The number of workers and the state of the decision.

    Attributes:
        replicas: the desired number of workers.
        history: the times and amounts of changes.
    """

    rules: Rules
    replicas: int = 0
    history: list[tuple[float, int]] = field(default_factory=list)
    _active_at: float = -math.inf
    _recommended: list[tuple[float, int]] = field(default_factory=list)

    def poll(self, now: float, work: float) -> None:
        """Apply KEDA's polling interval, at which it starts the first worker or stops all workers."""
        if work > self.rules.activation:
            self._active_at = now
            if self.replicas == 0:
                self._become(now, max(1, self.rules.least))
        elif self.replicas > self.rules.least == 0 and now - self._active_at > self.rules.cooldown:
            self._become(now, 0)

    def sync(self, now: float, work: float) -> None:
        """Apply a period of the autoscaler while there is a worker."""
        if self.replicas == 0:
            return
        wanted = self.replicas
        if abs(1 - work / (self.rules.threshold * self.replicas)) > TOLERANCE:
            wanted = math.ceil(work / self.rules.threshold)
        wanted = self._stabilized(now, wanted)
        if wanted > self.replicas:
            wanted = min(wanted, self.rules.most, max(self.replicas, self._highest(now)))
        elif wanted < self.replicas:
            wanted = max(wanted, 1, self.rules.least, min(self.replicas, self._lowest(now)))
        self._become(now, wanted)

    def _stabilized(self, now: float, wanted: int) -> int:
        """Not more than the least, and not less than the most, that was wanted within the two windows."""
        if not self._recommended:
            self._recommended.append((now, self.replicas))
        up = min([wanted, *_since(self._recommended, now - self.rules.up.window)])
        down = max([wanted, *_since(self._recommended, now - self.rules.down.window)])
        self._recommended.append((now, wanted))
        return min(max(self.replicas, up), down)

    def _highest(self, now: float) -> int:
        return max(
            self._at_start(now, seconds) + value
            if kind == "Pods"
            else math.ceil(self._at_start(now, seconds) * (1 + value / 100))
            for kind, value, seconds in self.rules.up.policies
        )

    def _lowest(self, now: float) -> int:
        return min(
            self._at_start(now, seconds) - value
            if kind == "Pods"
            else int(self._at_start(now, seconds) * (1 - value / 100))
            for kind, value, seconds in self.rules.down.policies
        )

    def _at_start(self, now: float, seconds: float) -> int:
        """How many there were at the beginning of a policy's period."""
        return self.replicas - sum(_since(self.history, now - seconds))

    def _become(self, now: float, replicas: int) -> None:
        if replicas != self.replicas:
            self.history.append((now, replicas - self.replicas))
            self.replicas = replicas


def reversals(changes: Sequence[int]) -> int:
    """How often growing turned into shrinking, or the other way round."""
    signs = [change > 0 for change in changes if change]
    return sum(one != other for one, other in pairwise(signs))


def _since(noted: Iterable[tuple[float, int]], moment: float) -> list[int]:
    return [value for at, value in noted if at > moment]
