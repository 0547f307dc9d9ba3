"""Each code block of README and docs is valid in its language, uses names that exist, and is executed or declared not to be."""

import ast
import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from operator import methodcaller
from pathlib import Path

import promql_parser
import pytest
import yaml

import ingest
from docs.blocks import PAGES, ROOT, Block, Run, RunBy, blocks_of
from docs.commands import commands_in, problem_of
from docs.scenarios import SCENARIOS
from ingest.services.http.api_routes import all_described
from ingest.settings import PREFIX, Settings

SHELL = {"sh", "bash", "console"}
# In an example of a warning about an unknown setting.
MISTYPED = {"INGEST_HEARTBEET_TTL"}


class ComposeLoader(yaml.SafeLoader):
    """Reads the tags of Docker Compose."""


for tag in ("!reset", "!override"):
    ComposeLoader.add_constructor(tag, lambda _, node: node.value)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_shows_valid_files_and_existing_commands_settings_and_routes(page: Path) -> None:
    text = page.read_text("utf-8")

    found = [
        *(f"{block}: {mistake}" for block in blocks_of(page) for mistake in mistakes_of(block)),
        *in_sentences(text),
        *(f"unknown setting {name}" for name in unknown_settings(text)),
        *(f"unknown route {path}" for path in unknown_routes(text)),
    ]

    assert found == []


def mistakes_of(block: Block) -> Iterator[str]:
    """Each block is executed or declared not to be, and it is valid in its language."""
    match block.mark:
        case None:
            yield "not declared as executed or not"
        case Run(scenario=scenario) if scenario not in SCENARIOS:
            yield f"unknown scenario {scenario}"
        case RunBy(test=test) if not (ROOT / test).is_file():
            yield f"there is no {test}"
        case _:
            pass
    try:
        if block.language == "python":
            yield from (f"{names} is not public" for names in private_imports(block.text))
        elif block.language in SHELL:
            yield from mistakes_of_script(block)
        else:
            parse_file(block)
    except Exception as error:  # noqa: BLE001  of any parser
        yield repr(error)


def private_imports(text: str) -> list[tuple[str | None, str]]:
    imported = [
        (module, name.name)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
        if (module := node.module if isinstance(node, ast.ImportFrom) else name.name)
        and module.partition(".")[0] == "ingest"
    ]
    return [names for names in imported if names[0] != "ingest" or names[1] not in ingest.__all__]


def parse_file(block: Block) -> None:
    match block.language:
        case "toml":
            alternatives = len({line.partition("=")[0] for line in block.text.splitlines()}) == 1
            [tomllib.loads(part) for part in (block.text.splitlines() if alternatives else [block.text])]
        case "yaml":
            [*yaml.load_all(block.text, ComposeLoader)]
        case "json":
            [json.loads(part) for part in re.split(r"\n(?=\{)", block.text)]
        case "promql":
            for query in block.text.splitlines():
                promql_parser.parse(query)
        case _:
            pass


def mistakes_of_script(block: Block) -> Iterator[str]:
    text = re.sub(r"^\$ ", "", block.text, flags=re.MULTILINE)
    if block.language != "console":
        parsed = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
        yield from parsed.stderr.splitlines()
    for command in commands_in(text):
        if problem := problem_of(command):
            yield f"{' '.join(command)}: {problem}"


def in_sentences(text: str) -> Iterator[str]:
    """Commands and options of the page that do not exist."""
    sentences = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    for quoted in re.findall(r"(?<!`)`(ingest [a-z][^`]*)`(?!`)", sentences):
        for command in commands_in(re.sub(r"\s+", " ", quoted)):
            if problem := problem_of(command, complete=False):
                yield f"{' '.join(command)}: {problem}"


@cache
def known_settings() -> set[str]:
    names = {PREFIX + name.upper() for name in Settings.model_fields}
    composed = re.findall(rf"\b{PREFIX}[A-Z0-9_]+\b", (ROOT / "docker-compose.yml").read_text("utf-8"))
    return names | {f"{name}_FILE" for name in names} | {*composed}


def unknown_settings(text: str) -> list[str]:
    named = re.findall(rf"\b{PREFIX}(?!TEST_)[A-Z0-9_]+\b(?![…*_{{<])", text)
    known = known_settings()
    return [name for name in {*named} - known - MISTYPED if not any(map(methodcaller("startswith", name), known))]


@cache
def routes() -> set[tuple[str, ...]]:
    """The routes and their beginnings, by segments, with `*` for a parameter."""
    paths = [*all_described()["paths"], "/v1/traces"]  # the latter is OpenTelemetry's
    paths += [f"/v1/sources/{{source}}{path.removeprefix('/v1')}" for path in paths if path.startswith("/v1/")]
    segments = [tuple("*" if part.startswith("{") else part for part in path.strip("/").split("/")) for path in paths]
    return {path[:length] for path in segments for length in range(1, len(path) + 1)}


def unknown_routes(text: str) -> list[str]:
    named = re.findall(r"(?<![\w}.])/v1/[^\s?`\"'|,)#…]*", text)

    def exists(path: str) -> bool:
        parts = path.strip("/.;:\\").split("/")
        return any(
            len(route) == len(parts) and all(known in ("*", part) for known, part in zip(route, parts, strict=True))
            for route in routes()
        )

    return [path for path in named if not exists(path)]
