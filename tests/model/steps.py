"""The steps of a machine: methods, each with a weight, a condition and its arguments.

They are not rules: among rules Hypothesis chooses evenly, and leaves many out of each run, so that most runs would come to
nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from hypothesis import strategies as st

_T = TypeVar("_T")

# Who, or which of several; they choose by the remainder, see `one_of`.
PICK = st.integers(0, 2)
WHICH = st.integers(0, 20)
SOME = st.integers(1, 6)
# A call whose reply is lost has been obeyed, and its caller goes on as if it had not.
LOST = st.booleans()


@dataclass(frozen=True)
class Step:
    """Something that may happen: how often, compared with others, when at all, and with what arguments."""

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
    """Make a method a step of the machine. One that would change nothing is a step wasted: see `when`."""

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
