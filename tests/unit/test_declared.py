"""Each operation is declared once, and each surface uses a declaration."""

import ast
import re
from pathlib import Path

import msgspec
import pytest
from surfaces import pages, routes

import ingest
from ingest.domain.api_key import Scope
from ingest.operations.declared import DECLARED, RECORDED_OF_COMMANDS, STATUS_OF, Sees

AUDIT = Path(__file__).parents[2] / "docs" / "operate" / "audit.md"
OPEN = {"/healthz", "/readyz", "/openapi.json", "/v1/webhooks/{webhook}"}
# Of a command, and recorded beside the operation that shows a job.
WITHOUT_SURFACE = {"jobs.read"}
PACKAGE = Path(ingest.__file__).parent
OF_COMMANDS = {each.name for each in RECORDED_OF_COMMANDS}
CHANGING = {Scope.ENQUEUE, Scope.PUSH, Scope.OPERATE, Scope.ERASE}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No `.env` counts."""
    monkeypatch.chdir(tmp_path)


def test_each_route_and_each_page_has_a_declaration_and_each_declaration_a_surface() -> None:
    over_http = {route.operation for route in routes("") if route.path not in OPEN}
    in_console = {page.operation for page in pages()}

    assert over_http | in_console == DECLARED.keys() - WITHOUT_SURFACE
    assert {route.operation for route in routes("") if route.path in OPEN} == {None}


def test_each_operation_has_its_scope_and_shows_what_is_declared() -> None:
    listed = {(name, " ".join(each.scopes), each.sees.name) for name, each in DECLARED.items()}
    reading = {(name, scopes, sees) for name, scopes, sees in listed if scopes == "read" and sees == "MASKED"}
    personal = {(name, scopes, sees) for name, scopes, sees in listed if sees == "PERSONAL"}

    assert {name for name, _, _ in reading} == {
        "orders.list",
        "orders.show",
        "dead_letters.read",
        "jobs.list",
        "jobs.show",
        "jobs.read",
        "audit.list",
    }
    assert personal == {
        ("orders.read", "read personal", "PERSONAL"),
        ("dead_letters.export", "read personal", "PERSONAL"),
        ("jobs.download", "read personal", "PERSONAL"),
    }
    assert {name for name, scopes, _ in listed if scopes in {"erase", "push", "enqueue"}} == {
        "orders.erase",
        "orders.push",
        "orders.announce",
    }
    assert all(
        each.scope in CHANGING or each.sees is not Sees.PERSONAL or each.is_audited for each in DECLARED.values()
    )


@pytest.mark.parametrize("page", pages(), ids=lambda page: f"{page.method} {page.path}")
def test_an_action_of_the_console_needs_the_scope_of_a_change(page) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    is_action = page.method == "POST" and page.operation != "console"

    assert not is_action or DECLARED[page.operation].scope in CHANGING


@pytest.mark.parametrize("route", [each for each in routes("") if each.operation], ids=lambda each: each.operation)
def test_a_route_has_a_dry_run_if_that_is_declared(route) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    bodies = [each for each in route.documentation.bodies.values() if isinstance(each, type)]
    fields = {field.name for body in bodies for field in msgspec.structs.fields(body)}

    assert route.declared.has_dry_run is ("dry_run" in fields)
    assert (route.method == "GET") is (route.declared.scope not in CHANGING)
    assert route.declared.errors.keys() <= STATUS_OF.keys()


def test_the_page_about_the_audit_log_has_each_operation_that_is_recorded() -> None:
    table = re.findall(r"^\| (`[^|]+) \|", AUDIT.read_text("utf-8").partition("## The table")[0], re.MULTILINE)

    listed = {name for row in table for name in re.findall(r"`([a-z_.]+)`", row)}

    assert listed - OF_COMMANDS == {name for name, each in DECLARED.items() if each.is_audited}


def test_an_action_of_the_audit_log_is_named_where_it_is_declared_and_nowhere_else() -> None:
    named = {each.name for each in DECLARED.values() if each.is_audited} | OF_COMMANDS
    writing = [*PACKAGE.glob("operations/**/*.py"), *PACKAGE.glob("store/**/*.py")]

    found = {
        (path.relative_to(PACKAGE).as_posix(), node.value)
        for path in writing
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and node.value in named
    }

    assert {(path, name) for path, name in found if path != "operations/declared.py"} == set()


def test_the_audit_log_has_these_actions() -> None:
    recorded = {each.name for each in DECLARED.values() if each.is_audited} | OF_COMMANDS

    assert recorded == {
        *("orders.read", "orders.erase", "orders.refetch", "orders.enqueue", "orders.remap", "orders.preview"),
        *("retries.run_now", "retries.dead_letter"),
        *("dead_letters.read", "dead_letters.export", "dead_letters.replay", "dead_letters.drop"),
        *("pause", "resume", "tune", "tune.reset", "drain", "drain.undo", "log_level"),
        *("jobs.read", "jobs.download", "jobs.cancel", "jobs.resume"),
        *("backfills.start", "backfills.cancel", "backfills.resume", "reconcile.enqueue", "orders.announce"),
    }
