"""docs/reference/log-events.md lists every log event of the service, and no other."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "log-events.md"
PACKAGE = ROOT / "ingest"

# Programs that log only for their own developers.
NOT_THE_SERVICE = ("lab", "demo", "bench")

_EVENT = re.compile(r"[a-z]+(_[a-z]+)*")
_LOGGER = re.compile(r"\b_?log(ger)?\b|get_logger")


def test_the_page_lists_the_events_in_the_code() -> None:
    documented = set(
        re.findall(r"^\| `([a-z_]+)` \| (?:debug|info|warning|error)", PAGE.read_text("utf-8"), re.MULTILINE)
    )

    assert set(events()) == documented - {"debug", "info", "warning", "error"}


def events() -> Iterator[str]:
    for file in PACKAGE.rglob("*.py"):
        if file.relative_to(PACKAGE).parts[0] in NOT_THE_SERVICE:
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                yield from _event_of(node)


def _event_of(call: ast.Call) -> Iterator[str]:
    """The event of `_log.info("event")`, `log("event")` or `warn(_log, "event")`."""
    match call.args:
        case [ast.Constant(value=str(event)), *_] if _EVENT.fullmatch(event) and _LOGGER.search(ast.unparse(call.func)):
            pass
        case [logger, ast.Constant(value=str(event)), *_] if _EVENT.fullmatch(event) and _LOGGER.fullmatch(
            ast.unparse(logger)
        ):
            pass
        case _:
            return
    if not ast.unparse(call.func).endswith(("get_logger", "bind")):
        yield event
