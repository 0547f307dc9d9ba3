"""`ingest doctor`: checks the servers and the settings, and gives advice."""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ingest.cli.options import Sources, checked_id
from ingest.cli.terminal.findings import COLOURS, colours_on, lines_of
from ingest.cli.terminal.output import standard_output
from ingest.cli.terminal.text import counted, printable_json
from ingest.cli.terminal.width import width_of
from ingest.domain.errors import ConfigError
from ingest.process.interrupt import run_interruptible

if TYPE_CHECKING:
    from ingest.operations.doctor.finding import Finding


def doctor(
    *,
    source: Sources = None,
    order_id: Annotated[
        str | None,
        typer.Option("--order-id", help="Request this order from the external API. Defaults to a known order."),
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for each server.", min=0.5, max=300)] = 10.0,
    show_all: Annotated[bool, typer.Option("--all", help="Also show the checks that passed.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all findings as JSON.")] = False,
) -> None:
    """Check servers, external APIs and settings.

    It checks Redis, PostgreSQL, the external API and the settings together, and gives advice. It changes nothing.

    Run it with the settings, and on the host, of the workers. It needs no more rights than they do. It requests one order from the
    external API: the given order, or a queued or stored one. Without any, it only requests a token, if the API uses one.
    With several sources, it checks Redis and PostgreSQL once, and the external API and the settings of each source.

    The exit code is 1 if there is an error, and 2 if a setting cannot be used that all sources share. Warnings leave it 0.

    Examples:
    `ingest doctor` checks the configured servers and settings. Without errors or warnings it prints one line.

    `ingest doctor --all --order-id 536365` also shows the checks that passed, and requests that order from the
    external API.

    `ingest doctor --source shop-de --order-id 1001` checks one of several sources, with an order of it.

    `ingest doctor --json | jq -r '.findings[] | select(.level == "error") | .what'` lists the errors.

    The checks, and the meaning of each line: https://order-ingest.example/docs/operate/doctor.html
    """
    from ingest.operations.doctor.examine import examine
    from ingest.settings import load_settings
    from ingest.settings.names import naming_keys_of
    from ingest.sources.doctor_subject import subject_of
    from ingest.telemetry.logs import setup_logs

    settings = load_settings()
    # Errors are in the report, and the log of the parts that found them would repeat them.
    setup_logs(settings.log_format, "error")
    subject = subject_of(settings, source, checked_id(order_id, "--order-id"), os.environ)
    for each in subject.sources:
        if each.settings.transform is not None:
            from ingest.mapping.transforms.process_pool import check_function

            try:
                with naming_keys_of(each.settings.source):
                    run_interruptible(check_function(each.settings.transform, each.settings.transform_memory))
            except ConfigError as error:
                if not each.settings.source:
                    raise
                subject.rejected[each.settings.source] = str(error)
    findings = run_interruptible(examine(subject, timeout))
    if as_json:
        with standard_output() as stream:
            print(printable_json(json.dumps(_report(findings), ensure_ascii=False)), file=stream)
    else:
        _print(findings, show_all=show_all)
    raise typer.Exit(1 if _counts(findings)["error"] else 0)


def _counts(findings: Sequence["Finding"]) -> dict[str, int]:
    return {level: sum(finding.level == level for finding in findings) for level in COLOURS}


def _report(findings: Sequence["Finding"]) -> dict[str, object]:
    counts = _counts(findings)
    return {"clean": not counts["error"], **counts, "findings": [asdict(each) for each in findings]}


def _print(findings: Sequence["Finding"], *, show_all: bool) -> None:
    is_coloured = colours_on(sys.stdout)
    for finding in findings:
        if show_all or finding.level != "ok":
            for line in lines_of(finding, width_of(sys.stdout), is_coloured=is_coloured):
                typer.echo(line)
    typer.echo(_summary(findings))


def _summary(findings: Sequence["Finding"]) -> str:
    counts = _counts(findings)
    passed = counted(counts["ok"], "check")
    if not counts["error"] and not counts["warning"]:
        return f"no errors, no warnings: {passed} passed"
    return f"{counted(counts['error'], 'error')}, {counted(counts['warning'], 'warning')}, {passed} passed"
