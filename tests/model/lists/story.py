"""A random story of a shop and of the readings of its list. The same seed makes the same story."""

from collections.abc import Mapping
from random import Random
from typing import Any

import msgspec
from model.lists.shapes import SHAPES

from ingest.lab.shops.shop_behaviour import ShopBehaviour

_FORMATS = ("%d.%m.%Y %H:%M", "%d.%m.%Y %H:%M:%S", "%Y%m%d%H%M%S")
_STEPS = ("poll", "poll", "poll", "cut poll", "change", "change", "backfill", "cut backfill", "reconcile", "pass")


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """What happens.

    Attributes:
        seed: of this story, and of all chance in it.
        shape: see `SHAPES`.
        size: elements that are requested of a page.
        orders: number of initial orders.
        is_stored: whether they are stored at the beginning.
        modes: of the shop, to the end.
        faults: modes of the shop that end before the last poll.
        changes: orders that change or are created before each request, on average.
        latency: longest time of a request in seconds.
        overlap: seconds that a poll reads again.
        steps: operations, changes and pauses. A cut operation ends early, like with its process.
    """

    seed: int
    shape: str
    size: int
    orders: int
    is_stored: bool
    modes: dict[str, object]
    faults: dict[str, object]
    changes: float
    latency: float
    overlap: float
    steps: tuple[tuple[str, float], ...]

    def __str__(self) -> str:
        """The story in a few lines."""
        steps = ", ".join(name if name not in ("change", "pass") else f"{name} {by:g}" for name, by in self.steps)
        modes = ", ".join(f"{name}={value}" for name, value in self.modes.items()) or "none"
        faults = ", ".join(f"{name}={value}" for name, value in self.faults.items()) or "none"
        return (
            f"seed {self.seed}: {self.shape}, pages of {self.size}, {self.orders} orders, stored: {self.is_stored}\n"
            f"modes: {modes}; faults: {faults}; {self.changes} changes per request of {self.latency:g} s, overlap {self.overlap:g} s\n"
            f"steps: {steps}"
        )


def story_of(seed: int) -> Story:
    """Return the story of a seed."""
    random = Random(seed)
    plain = [name for name in SHAPES if name.startswith("plain")]
    shape = random.choice(plain if random.random() < 0.6 else [*SHAPES])
    size = random.randint(3, 8)
    orders = random.choice((0, 1, size, 2 * size, random.randint(1, 40), random.randint(10, 40)))
    modes: dict[str, object] = {}
    faults: dict[str, object] = {}
    for name, value, is_fault in _possible(random, shape, size, orders):
        (faults if is_fault else modes)[name] = value
    steps = tuple(
        (random.choice(_STEPS), float(random.choice((1, 2, 3, 10, 30, 120, 400)))) for _ in range(random.randint(2, 7))
    )
    return Story(
        seed=seed,
        shape=shape,
        size=size,
        orders=orders,
        is_stored=random.random() < 0.5,
        modes=modes,
        faults=faults,
        changes=random.choice((0.0, 0.2, 1.0)),
        latency=random.choice((0.1, 0.5, 2.0)),
        overlap=random.choice((60.0, 300.0)),
        steps=steps,
    )


def _possible(random: Random, shape: str, size: int, orders: int) -> list[tuple[str, object, bool]]:
    """Draw the modes of a shop, each with whether it ends."""
    drawn: list[tuple[str, object, bool]] = [
        ("index_lag", float(random.choice((1, 5, 30))), random.random() < 0.5),
        ("left_out", random.randint(2, 5), False),
        ("page_cap", random.randint(1, size), False),
        ("repeats", True, True),
        ("breaking_id", random.randint(1, max(1, orders)), random.random() < 0.5),
        ("time_step", 60.0, False),
        ("replica_lag", float(random.choice((2, 10, 40))), True),
        ("database_behind", float(random.choice((-60, 30, 200, 600))), False),
        ("down", True, True),
        ("throttled", True, True),
    ]
    modes = random.sample(drawn, random.choice((0, 1, 1, 2, 3)))
    if not SHAPES[shape].says_end:
        # A page of which all orders are left out would be the end.
        modes = [each for each in modes if each[0] != "left_out"]
    if shape.startswith("plain") and random.random() < 0.2:
        modes.append(("time_format", random.choice(_FORMATS), False))
    if any(name == "replica_lag" for name, _, _ in modes):
        modes.append(("replica_share", random.choice((0.3, 1.0)), True))
    return modes


def defaults(names: Mapping[str, object]) -> dict[str, Any]:
    """Return the usual values of some modes."""
    usual = ShopBehaviour(token="-", client="-:-", token_lifetime=1.0)
    return {name: getattr(usual, name) for name in names}
