"""Each code block of README and docs is valid in its language, uses names that exist, and is executed or declared not to be."""

import ast
import json
import re
import subprocess
import tomllib
from operator import methodcaller
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

import ingest
from docs.blocks import PAGES, ROOT, Block, Run, RunBy, all_blocks
from docs.commands import commands_in, problem_of
from docs.scenarios import SCENARIOS
from ingest.services.http.api_routes import all_described
from ingest.settings import PREFIX, Settings

BLOCKS = all_blocks()
SHELL = {"sh", "bash", "console"}


def blocks(*languages: str) -> list[Any]:
    return [pytest.param(block, id=str(block)) for block in BLOCKS if not languages or block.language in languages]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_each_block_is_executed_or_declared_not_to_be(page: Path) -> None:
    name = page.relative_to(ROOT).as_posix()
    of_page = [block for block in BLOCKS if block.page == name]

    undeclared = [str(block) for block in of_page if block.mark is None]
    unknown = [str(block) for block in of_page if isinstance(block.mark, Run) and block.mark.scenario not in SCENARIOS]
    missing = [
        str(block) for block in of_page if isinstance(block.mark, RunBy) and not (ROOT / block.mark.test).is_file()
    ]

    assert (undeclared, unknown, missing) == ([], [], [])


@pytest.mark.parametrize("block", blocks("python"))
def test_python_compiles_and_imports_public_names(block: Block) -> None:
    tree = ast.parse(block.text)

    imported = [
        (module, name.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
        if (module := node.module if isinstance(node, ast.ImportFrom) else name.name)
        and module.partition(".")[0] == "ingest"
    ]

    assert [names for names in imported if names[0] != "ingest" or names[1] not in ingest.__all__] == []


class ComposeLoader(yaml.SafeLoader):
    """Reads the tags of Docker Compose."""


for tag in ("!reset", "!override"):
    ComposeLoader.add_constructor(tag, lambda _, node: node.value)


@pytest.mark.parametrize("block", blocks("toml", "yaml", "json", "promql"))
def test_a_file_can_be_parsed(block: Block) -> None:
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


@pytest.mark.parametrize("block", blocks(*SHELL))
def test_a_script_can_be_parsed_and_its_commands_and_options_exist(block: Block) -> None:
    text = re.sub(r"^\$ ", "", block.text, flags=re.MULTILINE)
    if block.language != "console":
        parsed = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
        assert parsed.stderr == ""

    problems = {" ".join(command): problem for command in commands_in(text) if (problem := problem_of(command))}

    assert problems == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_and_options_in_a_sentence_exist(page: Path) -> None:
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    quoted = [re.sub(r"\s+", " ", words) for words in re.findall(r"(?<!`)`(ingest [a-z][^`]*)`(?!`)", text)]

    problems = {
        words: problem
        for words in quoted
        for command in commands_in(words)
        if (problem := problem_of(command, complete=False))
    }

    assert problems == {}


# In an example of a warning about an unknown setting.
MISTYPED = {"INGEST_HEARTBEET_TTL"}


def known_settings() -> set[str]:
    names = {PREFIX + name.upper() for name in Settings.model_fields}
    composed = re.findall(rf"\b{PREFIX}[A-Z0-9_]+\b", (ROOT / "docker-compose.yml").read_text("utf-8"))
    return names | {f"{name}_FILE" for name in names} | {*composed}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_each_setting_of_a_page_exists(page: Path) -> None:
    named = re.findall(rf"\b{PREFIX}(?!TEST_)[A-Z0-9_]+\b(?![…*_{{<])", page.read_text("utf-8"))

    known = known_settings()
    unknown = {name for name in {*named} - known - MISTYPED if not any(map(methodcaller("startswith", name), known))}

    assert sorted(unknown) == []


def routes() -> set[tuple[str, ...]]:
    """The routes and their beginnings, by segments, with `*` for a parameter."""
    paths = [*all_described()["paths"], "/v1/traces"]  # the latter is OpenTelemetry's
    paths += [f"/v1/sources/{{source}}{path.removeprefix('/v1')}" for path in paths if path.startswith("/v1/")]
    segments = [tuple("*" if part.startswith("{") else part for part in path.strip("/").split("/")) for path in paths]
    return {path[:length] for path in segments for length in range(1, len(path) + 1)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_each_route_of_the_http_api_on_a_page_exists(page: Path) -> None:
    known = routes()
    named = re.findall(r"(?<![\w}.])/v1/[^\s?`\"'|,)#…]*", page.read_text("utf-8"))

    def exists(path: str) -> bool:
        parts = path.strip("/.;:\\").split("/")
        return any(
            len(route) == len(parts) and all(known in ("*", part) for known, part in zip(route, parts, strict=True))
            for route in known
        )

    assert {path for path in named if not exists(path)} == set()
