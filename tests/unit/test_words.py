"""Texts use the terms of docs/reference/glossary.md, and none of the words that those terms replace."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEWLINE = "\n"

# Where the terms hold: files and directories.
PATHS = ("README.md", "Dockerfile", "docker-compose.yml", "deploy", "docs", "ingest")
SUFFIXES = {"", ".env", ".md", ".py", ".lua", ".sql", ".yml", ".yaml", ".conf", ".acl", ".sh"}

# What not to write, and what to write instead.
REPLACED = {
    r"bur(y|ied|ies|ial|ying)": "dead-letter",
    r"(?<!dead[-\s])letters(?! (and|or) digits?)": "dead letters",
    r"away": "unavailable",
    r"(give|gives|given|gave|giving)( \w+){0,2} back": "release",
    r"(take|takes|taken|took|taking) ((it|them|these|those|orders|entries) )?(over|up)": "reclaim",
    r"in hand|under way": "in flight",
    r"beat|beats|beating": "heartbeat",
    r"silent|silence|silences": "stale, idle",
    r"take (the|an) account|takes (the|an) account": "reconcile",
    r"strangers?": "unexpected orders",
    r"patience|patient": "retry policy, backoff",
    r"judge[sd]?|judging|doubt\w*|acquit\w*|the known order": "classify, evidence window, canary request",
    r"(run|runs|ran|running)( it| them)? alone": "isolate",
    r"tidy|tidies|tidied|tidying": "maintenance",
    r"seams?": "port",
    r"receipts?": "idempotency record",
    r"board": "shared-memory metrics",
    r"sightings?": "order location",
    r"the way of a delivery|let everything fail|measure it": "message lifecycle, chaos testing, benchmarks",
    r"sees? to (the|it|them|dead)": "manage",
    r"for ever|forever": "indefinitely",
    r"so many": "N",
    r"is no setting": "unknown setting",
    r"houses?": "package, module, layer",
    r"anew|amid|whoever|whatsoever": "a plainer word",
}
FORBIDDEN = re.compile("|".join(rf"\b(?:{words})\b" for words in REPLACED).replace(" ", r"\s+"), re.IGNORECASE)

# Habits of a text that reads as translated, and the folders that are free of them.
HABITS = {
    r"somebody|nobody|everybody|someone": "the actor: operator, another session, client",
    r", as (it|they|there|a|an|each|no|we|its)": "because",
    r"at once|meanwhile|half as (many|much)|some \d+": "immediately, concurrently, about",
    r"(says?|said|tells?|told|goes? on) (that|how|whether|what|for)": "report, log, continue",
    r"is over|are over": "has ended",
    r"(, too|also)\.": "including, even, only",
}
HABIT = re.compile("|".join(rf"(?:\b|(?=,))(?:{words})(?:\b|(?<=\.))" for words in HABITS).replace(" ", r"\s+"))
FREE = (
    "ingest/api",
    "ingest/cli",
    "ingest/client",
    "ingest/domain",
    "ingest/files",
    "ingest/flow",
    "ingest/mapping",
    "ingest/operations",
    "ingest/probes",
    "ingest/process",
    "ingest/queue",
    "ingest/services",
    "ingest/settings",
    "ingest/sources",
    "ingest/store",
    "ingest/telemetry",
    "ingest/upstream",
)

# A command of Alertmanager, an argument of Redis', a stored key, and the reserved name of an API key.
ALLOWED = ("silence add job=ingest", '"SILENT"', "'SILENT'", ":receipt:", "letters, digits", '"nobody"', "`nobody`")


def texts() -> Iterator[Path]:
    for name in PATHS:
        path = ROOT / name
        files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES)
        for file in files:
            if file.is_file() and "__pycache__" not in file.parts:
                yield file


@pytest.mark.parametrize("path", [*texts()], ids=lambda path: str(path.relative_to(ROOT)))
def test_a_text_uses_the_terms_of_the_glossary(path: Path) -> None:
    # Without indentation, and without the quotes of continued strings: a term may be wrapped.
    text = re.sub(r" *\"?\n[ >#]+\"?", NEWLINE, path.read_text(encoding="utf-8"))
    for phrase in ALLOWED:
        text = text.replace(phrase, "")

    found = [
        f"{path.relative_to(ROOT)}:{text.count(NEWLINE, 0, match.start()) + 1}: {match[0]}"
        for match in FORBIDDEN.finditer(text)
    ]

    assert found == []


@pytest.mark.parametrize(
    "path", [path for path in texts() if path.as_posix().startswith(tuple(f"{ROOT}/{free}" for free in FREE))], ids=str
)
def test_a_text_reads_as_if_it_was_written_in_english(path: Path) -> None:
    text = re.sub(r" *\n[ #]+", NEWLINE, path.read_text(encoding="utf-8"))
    for phrase in ALLOWED:
        text = text.replace(phrase, "")

    found = [f"{text.count(NEWLINE, 0, match.start()) + 1}: {match[0]}" for match in HABIT.finditer(text)]

    assert found == []
