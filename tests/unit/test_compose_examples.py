"""The documentation of docker-compose.yml and its examples of docker-compose.override.yml match the file."""

import re
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "docs" / name
    for name in (
        "start/laptop-to-production.md",
        "deploy/compose.md",
        "deploy/compose-maintenance.md",
        "operate/scale.md",
    )
]


class Reset:
    """`!reset` removes the previous value."""


class Override(dict[str, Any]):
    """`!override` replaces the previous value instead of merging."""


class Loader(yaml.SafeLoader):
    """Knows the tags of Compose."""


Loader.add_constructor("!reset", lambda _loader, _node: Reset())
Loader.add_constructor("!override", lambda loader, node: Override(loader.construct_mapping(node, deep=True)))


def examples() -> list[Any]:
    """Each example that changes a service of the file, by its page and line."""
    base = load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in re.finditer(r"^( *)```yaml\n(.*?)^\1```", text, re.MULTILINE | re.DOTALL):
            example = load(dedent(block[2]))
            if isinstance(example, dict) and set(example.get("services", ())) & set(base):
                line = text.count("\n", 0, block.start()) + 1
                found.append(pytest.param(base, example["services"], id=f"{page.name}:{line}"))
    return found


def load(text: str) -> Any:
    return yaml.load(text, Loader)


@pytest.mark.parametrize(("base", "example"), examples())
def test_no_service_depends_on_one_that_an_example_disables(
    base: Mapping[str, Any], example: Mapping[str, Any]
) -> None:
    services = {name: merged(base.get(name, {}), example.get(name, {})) for name in {*base, *example}}
    enabled = {name: facts for name, facts in services.items() if not facts.get("profiles")}

    missing = [
        (name, needed)
        for name, facts in enabled.items()
        for needed, condition in facts.get("depends_on", {}).items()
        if needed not in enabled and condition.get("required", True)
    ]

    assert missing == []


def test_the_memory_that_the_pages_ask_for_is_the_sum_of_all_limits() -> None:
    base = load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    # Of what runs at the same time: `migrate` and `redis-cluster` have exited, and `api-key` is a tool.
    running = {name: facts for name, facts in base.items() if name not in {"migrate", "redis-cluster", "api-key"}}
    nodes = {name: facts for name, facts in running.items() if facts.get("profiles") == ["cluster"]}

    megabytes, more = (
        sum(megabytes_of(facts["deploy"]) for facts in services.values())
        for services in ({name: running[name] for name in running.keys() - nodes}, nodes)
    )

    assert f"about {round(megabytes / 1024)} GB of memory" in words_of("deploy/compose.md")
    assert f"another {round(more / 1024)} GB of memory" in words_of("deploy/cluster.md")


def words_of(page: str) -> str:
    """The text of a page in one line."""
    return " ".join((ROOT / "docs" / page).read_text(encoding="utf-8").split())


def megabytes_of(deploy: Mapping[str, Any]) -> int:
    """The limit of a service, for all its containers."""
    number, unit = re.fullmatch(r"(\d+)([gm])", deploy["resources"]["limits"]["memory"]).groups()  # type: ignore[union-attr]
    return int(number) * (1024 if unit == "g" else 1) * int(deploy.get("replicas", 1))


def merged(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """One mapping over another, as Compose does."""
    result = dict(base)
    for name, value in change.items():
        before = base.get(name)
        if isinstance(value, Reset):
            result.pop(name, None)
        elif isinstance(before, dict) and isinstance(value, dict) and not isinstance(value, Override):
            result[name] = merged(before, value)
        else:
            result[name] = value
    return result
