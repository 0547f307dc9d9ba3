"""Closed or full standard streams, hostile input, and Ctrl-C at any time: one line and the right exit code."""

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path

import pytest
from acceptance.queued import Queued
from integration.scene import Scene
from shipped import environment_of
from support import Cli, eventually_sync, fill

INGEST = [sys.executable, "-m", "ingest"]
DEEP = 500_000


def redirected(cli: Cli, redirection: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command with a redirection of the shell's."""
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {redirection}', "sh", *INGEST, *arguments],
        env={**environment_of(arguments, cli.env), **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


# -- closed or full streams ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [["enqueue", "-"], ["enqueue", "--file", "-", "--format", "csv", "--column", "id"]], ids=" ".join)  # fmt: skip
def test_a_closed_input_is_one_line(cli: Cli, queued: Queued, arguments: list[str]) -> None:
    done = redirected(cli, "<&-", *arguments)

    assert (done.returncode, done.stdout, done.stderr) == (1, "", "ingest: cannot read stdin: Bad file descriptor\n")
    assert queued() == []


def test_without_an_input_no_confirmation_is_asked_for(cli: Cli, queued: Queued) -> None:
    queued.dead_letter("a")
    queued.dead_letter("b")

    done = redirected(cli, "<&-", "dead", "drop", "--all")

    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "--yes" in done.stderr


@pytest.mark.parametrize("redirection", [pytest.param(">&-", marks=pytest.mark.nightly), "> /dev/full"])
@pytest.mark.parametrize(
    ("arguments", "unbuffered"),
    [(["dead", "export"], ""), (["dead", "list"], ""), (["config"], ""), (["config", "--json"], ""), (["config"], "1"),
     (["status"], ""), (["status", "--watch", "--json"], ""), (["enqueue", "b"], ""), (["enqueue", "b"], "1"),
     (["migrate"], ""), (["dead", "list", "--help"], ""), (["--version"], "")],
)  # fmt: skip
def test_an_output_that_cannot_be_written_is_one_line(
    cli: Cli, queued: Queued, arguments: list[str], redirection: str, unbuffered: str
) -> None:
    queued.dead_letter("a")

    done = redirected(cli, redirection, *arguments, PYTHONUNBUFFERED=unbuffered)

    why = "Bad file descriptor" if redirection == ">&-" else "No space left on device"
    assert (done.returncode, done.stderr) == (1, f"ingest: cannot write to standard output: {why}\n")


def test_a_command_that_prints_nothing_needs_no_output(cli: Cli, tmp_path: Path, queued: Queued) -> None:
    queued.dead_letter("a")

    done = redirected(cli, "<&- >&- 2>&-", "dead", "export", "--output", str(tmp_path / "dead"))

    assert done.returncode == 0
    assert '"order_id": "a"' in (tmp_path / "dead").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "limit", "problem"),
    [
        (["worker"], 20, "the limit of open files is 20: a process needs at least 32 (ulimit -n)"),
        (["api"], 20, "the limit of open files is 20: a process needs at least 32 (ulimit -n)"),
        (["demo"], 5, "no file descriptors are left: raise the limit of open files (ulimit -n)"),
    ],
    ids=["worker", "api", "demo"],
)
def test_too_few_file_descriptors_are_one_line(cli: Cli, arguments: list[str], limit: int, problem: str) -> None:
    command = ["sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh", *INGEST, *arguments]

    done = subprocess.run(command, env=cli.env, capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == f"ingest: {problem}"
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize("arguments", [[], ["upstream"]], ids=" ".join)
def test_help_is_printed_in_a_locale_that_is_not_utf_8(cli: Cli, arguments: list[str], encoding: str) -> None:
    done = cli.run(*arguments, "--help", env={"PYTHONIOENCODING": encoding})

    assert (done.returncode, done.stderr) == (0, "")
    assert r"\u2026" in done.stdout


def test_a_worker_needs_no_standard_streams(cli: Cli, queued: Queued) -> None:
    process = subprocess.Popen(
        ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *INGEST, "worker"],
        env={**cli.env, "INGEST_UPSTREAM_URL": "http://127.0.0.1:1/{order_id}"},
        start_new_session=True,
    )
    try:
        cli.run("enqueue", "a")
        eventually_sync(lambda: queued.pending() or process.poll() is not None)
        process.send_signal(signal.SIGTERM)

        assert process.wait(30) == 0
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def worker_with_a_broken_log(environment: dict[str, str], log: str) -> subprocess.Popen[bytes]:
    redirection = "2>/dev/full" if log == "on a full disk" else ""
    process = subprocess.Popen(
        ["sh", "-c", f'exec "$@" {redirection}', "sh", *INGEST, "worker"],
        env=environment,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stderr is not None
    process.stderr.close()
    return process


@pytest.mark.parametrize("log", ["on a full disk", "without a reader"])
async def test_a_worker_whose_log_cannot_be_written_stores_orders_and_stops(
    cli: Cli, redis_url: str, dsn: str, queue_name: str, log: str
) -> None:
    async with Scene.open(redis_url, dsn, queue_name) as scene:
        scene.api.behave(error_rate=1, fail_first=4)
        await scene.enqueue("a", "b")
        settings = {"INGEST_UPSTREAM_URL": scene.api.url_template, "INGEST_LOG_LEVEL": "debug"}
        process = worker_with_a_broken_log({**cli.env, **settings}, log)
        try:
            await scene.finished()
            assert set(await scene.rows()) == {"a", "b"}
            process.send_signal(signal.SIGTERM)

            assert await asyncio.to_thread(process.wait, 30) == 0
            with pytest.raises(ProcessLookupError):
                os.killpg(process.pid, 0)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


# -- input and arguments ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    ["[" * DEEP, '{"a":' * 200_000, '{"id":' + "[" * DEEP + "]" * DEEP + "}", '{"x":' + '{"a":' * 150_000 + "0" + "}" * 150_000 + "}", '{"id": ' + "7" * 5_000 + "}"],
    ids=["arrays", "objects", "in the member", "in another member", "a number of many digits"],
)  # fmt: skip
def test_unreadable_json_lines_are_reported_and_the_others_are_enqueued(cli: Cli, queued: Queued, line: str) -> None:
    text = '{"id": "a"}\n' + line + '\n{"id": "b"}\n'

    done = cli.run("enqueue", "-", "--format", "jsonl", "--column", "id", stdin=text)

    assert done.returncode == 1
    assert done.stdout.startswith("2 accepted, 1 invalid")
    assert done.stderr.startswith("stdin, line 2: ")
    assert (done.stderr.count("\n"), len(done.stderr) < 500) == (1, True)
    assert queued() == ["a", "b"]


@pytest.mark.parametrize("value", ["inf", "nan", "-inf", "0", "-1", "1e999"])
@pytest.mark.parametrize("command", [["enqueue", "a", "--rate"], ["status", "--interval"], ["upstream", "--rate-limit"]], ids=" ".join)  # fmt: skip
def test_a_number_that_is_not_finite_or_out_of_range_is_wrong_use(
    cli: Cli, queued: Queued, command: list[str], value: str
) -> None:
    if (command[0], value) == ("upstream", "0"):
        value = "-0.1"

    done = cli.run(*command, value, timeout=20)

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert command[-1] in done.stderr
    assert queued() == []


# -- Ctrl-C -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "module", ["ingest.domain.errors", "typer.models", "typer.main", "ingest.cli.orders.id_sources.sources", "pydantic_core", "pydantic_settings", "rich.console", "redis.exceptions", "hiredis", "ingest.settings"],
)  # fmt: skip
def test_ctrl_c_while_python_imports_is_one_line(cli: Cli, module: str) -> None:
    # Python prints the name of each module that it has imported.
    process = cli.start("enqueue", "-", env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert process.stderr is not None

    output = ""
    for line in process.stderr:
        output += line
        if line.rpartition("|")[2].strip() == module:
            process.send_signal(signal.SIGINT)
            break
    output += process.stderr.read()

    rest = [line for line in output.splitlines() if not line.startswith("import time:")]
    assert (process.wait(30), rest) == (130, ["stopped"])


@pytest.mark.parametrize("ids", [["a"], ["not\tan ID"] * 3])
def test_ctrl_c_ends_a_command_whose_messages_nobody_reads(cli: Cli, tmp_path: Path, ids: list[str]) -> None:
    """The stop is the second message in one case. In the other, there are more messages during the work."""
    (tmp_path / "ids").write_text("\n".join(ids))
    unread, log = os.pipe()
    # One page, with room for only the first message.
    fcntl.fcntl(log, fcntl.F_SETPIPE_SZ, 4096)
    process = subprocess.Popen(
        [*INGEST, "enqueue", "--file", str(tmp_path / "ids")],
        env={**cli.env, "INGEST_REDIS_URL": "redis://127.0.0.1:1"},
        stderr=log,
    )
    try:
        eventually_sync(lambda: any(fcntl.ioctl(unread, termios.FIONREAD, bytes(4))))
        process.send_signal(signal.SIGINT)

        assert process.wait(20) == 130
    finally:
        process.kill()
        process.wait()
        os.close(unread)
        os.close(log)


# A few kilobytes are in a buffer that is written at the end.
@pytest.mark.parametrize("count", [100, 10], ids=["while reading", "at the end"])
def test_ctrl_c_ends_a_command_whose_output_nobody_reads(cli: Cli, queued: Queued, count: int) -> None:
    for number in range(count):
        queued.dead_letter(f"order-{number}")
    unread, output = os.pipe()
    fill(output)
    command = [*INGEST, "dead", "list", "--json"]
    process = subprocess.Popen(command, env=cli.env, stdout=output, stderr=subprocess.PIPE, text=True)
    try:
        eventually_sync(lambda: writes_output(process.pid))
        process.send_signal(signal.SIGINT)

        _, errors = process.communicate(timeout=20)
        assert (process.returncode, errors) == (130, "stopped\n")
    finally:
        process.kill()
        process.wait()
        os.close(unread)
        os.close(output)


def writes_output(process_id: int) -> bool:
    """Whether a process is in a system call for its standard output, according to Linux."""
    return Path(f"/proc/{process_id}/syscall").read_text().split()[1:2] == ["0x1"]


def test_a_background_job_of_a_script_continues_after_ctrl_c(cli: Cli, queued: Queued) -> None:
    # A shell without job control starts it with SIGINT ignored.
    done = subprocess.run(
        ["sh", "-c", "trap '' INT; kill -INT $$; exec \"$@\"", "sh", *INGEST, "enqueue", "a"],
        env=cli.env, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")
    assert queued() == ["a"]
