"""The steps of a machine: methods, each with a weight, a condition and its arguments.

They are not rules, because Hypothesis chooses evenly among rules and leaves many out of each run, so that most runs would
be empty.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from hypothesis import strategies as st

_T = TypeVar("_T")

# The index of a consumer or of another choice, which is taken modulo their number, see `one_of`.
PICK = st.integers(0, 2)
WHICH = st.integers(0, 20)
SOME = st.integers(1, 6)
# A call whose reply is lost has been executed, and its caller continues as if it had not.
LOST = st.booleans()


@dataclass(frozen=True)
class Step:
    """A possible step with its weight, its condition and its arguments."""

    name: str
    weight: int
    when: Callable[[Any], object]
    arguments: st.SearchStrategy[dict[str, Any]]


class Taken:
    """A step with its arguments, as failures print it."""

    def __init__(self, name: str, arguments: dict[str, Any]) -> None:
        self.name = name
        self.arguments = arguments

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in self.arguments.items())})"


STEPS: list[Step] = []


def step(weight: int, when: Callable[[Any], object], **arguments: st.SearchStrategy[Any]) -> Callable[[_T], _T]:
    """Make a method a step of the machine. Use `when` to avoid steps without an effect."""

    def add(method: Any) -> Any:
        STEPS.append(Step(method.__name__, weight, when, st.fixed_dictionaries(arguments)))
        return method

    return add


@st.composite
def possible_step(draw: st.DrawFn) -> Taken:
    """One of the steps that the machine can take now."""
    machine = draw(st.runner())
    chosen = draw(_by_weight().filter(lambda step: step.when(machine)))
    return Taken(chosen.name, draw(chosen.arguments))


@cache
def _by_weight() -> st.SearchStrategy[Step]:
    return st.sampled_from([step for step in STEPS for _ in range(step.weight)])
