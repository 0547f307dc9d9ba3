"""Texts use the terms of docs/reference/glossary.md, and none of the words that those terms replace."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

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

# Habits of a text that reads as translated, and what to write instead.
HABITS = {
    r"somebody|nobody|everybody|someone": "the actor: operator, another session, client",
    r", as (it|they|there|a|an|each|no|we|its)": "because",
    r"at once|meanwhile|half as (many|much)|some \d+": "immediately, concurrently, about",
    r"(says?|said|tells?|told|goes? on) (that|how|whether|what|for)": "report, log, continue",
    r"is over|are over": "has ended",
    r"(, too|also)\.": "including, even, only",
}
HABIT = re.compile("|".join(rf"(?:\b|(?=,))(?:{words})(?:\b|(?<=\.))" for words in HABITS).replace(" ", r"\s+"))

# Habits that a pattern can find only in docstrings and comments, and what to write instead.
_PROSE = {
    r"(?:(?:^|[.:(] )What|(?:[,:(] |\b(?:of|with|than|by|from|for|and|to|after|before|as|is) )what) "
    r"(?:is|was|are|were|has|have|had|comes|goes|came|waits|they|it)\b": "the name of the thing",
    r";\s+[`a-z]": "a new sentence",
    r"\b(?:that of|those of|one that|of (?:its|their|an?) own)\b": "the noun again, separate",
    r"(?:^|[.:] )(?:Nothing|Nowhere)\b|\b(?:no|nothing|none) \w+ but\b": "an affirmative sentence",
    r"\bpeople\b|\ba person\b": "the actor: operator, user",
    r"\ba (?:third|fifth|sixth|seventh|eighth|ninth|tenth) (?:of|less|more)\b": "33 %",
    r"\b(?:beside|besides)\b": "next to, in addition to",
    r"(?:^|[.] )Also\b|, too\b": "including, even, only",
    r"\b(?:knows|learns|refuses)\b": "detect, reject, deny",
}
PROSE_HABITS = {re.compile(pattern.replace(" ", r"\s+"), re.MULTILINE): instead for pattern, instead in _PROSE.items()}
COMMENT = re.compile(r"(?:^|  ) *# ?(.*)")

# A command of Alertmanager, an argument of Redis', a stored key, and a reserved name of an API key, which is also a user.
ALLOWED = (
    "silence add job=ingest",
    '"SILENT"',
    "'SILENT'",
    ":receipt:",
    "`receipt:…`",
    "letters, digits",
    '"nobody"',
    "'nobody'",
    "`nobody`",
)


def texts(*names: str) -> Iterator[tuple[str, str]]:
    """The names and the contents of the files in some files and folders."""
    for name in names:
        path = ROOT / name
        files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES)
        for file in files:
            # The page for contributors lists the replaced words.
            if file.is_file() and "__pycache__" not in file.parts and file.name != "development.md":
                yield file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")


def places(name: str, text: str, pattern: re.Pattern[str]) -> Iterator[str]:
    for match in pattern.finditer(text):
        yield f"{name}:{text.count(NEWLINE, 0, match.start()) + 1}: {match[0]!r}"


def without_allowed(text: str) -> str:
    for phrase in ALLOWED:
        text = text.replace(phrase, "")
    return text


def test_texts_use_the_terms_of_the_glossary() -> None:
    # Without indentation, and without the quotes of continued strings: a term may be wrapped.
    found = [
        place
        for name, text in texts(*PATHS)
        for place in places(name, without_allowed(re.sub(r" *\"?\n[ >#]+\"?", NEWLINE, text)), FORBIDDEN)
    ]

    assert found == []


def test_texts_of_the_package_read_as_if_they_were_written_in_english() -> None:
    found = [
        place
        for name, text in texts("ingest")
        for place in places(name, without_allowed(re.sub(r" *\n[ #]+", NEWLINE, text)), HABIT)
    ]

    assert found == []


def test_docstrings_and_comments_read_as_if_they_were_written_in_english() -> None:
    found = [
        f"{place}, write {instead}"
        for name, text in texts("ingest")
        for written in [prose(name, text)]
        for pattern, instead in PROSE_HABITS.items()
        for place in places(name, written, pattern)
    ]

    assert found == []


def prose(name: str, text: str) -> str:
    """The docstrings and comments of a file, on the lines where they are."""
    lines = text.splitlines()
    if not name.endswith(".py"):
        return NEWLINE.join(line.partition("-- ")[2] for line in lines)
    found = [match[1] if (match := COMMENT.search(line)) else "" for line in lines]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            first, last = node.lineno - 1, node.end_lineno or node.lineno
            found[first:last] = [line.strip() for line in lines[first:last]]
    return NEWLINE.join(found)
