"""Runs `ingest worker`. Its command line is another process, which parses the arguments, reads the settings, and ends.

Without it, two worker processes and the others of a command use 104 MB over HTTPS instead of 90, more than the bound of 95 MB. This
process imports the service while the command line is read. If there is nothing to run, the other process has printed the reason or the
help, and this one ends with the same exit code.
"""

import asyncio  # noqa: F401  both processes need it, so it is imported before the fork
import os
import signal
import sys
import traceback
from typing import NoReturn

from ingest.domain.errors import ConfigError, UserError
from ingest.process.interrupt import ending_at_once
from ingest.process.standard_streams import secure
from ingest.settings.packed import LoadedSettings, pack_settings, unpack_settings


def main() -> None:
    """Run `ingest worker` with the command line of this process."""
    secure()
    # A program that ignores SIGCHLD passes this on to the programs that it starts, and exit codes of children get lost.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if os.getpid() == 1:
        # See `ingest.cli.main`. The supervisor installs another handler.
        signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))
    try:
        code = _run()
    except BaseException as error:  # noqa: BLE001  reported by the command line, as for every command
        with ending_at_once():
            from ingest.cli import ended_by  # noqa: PLC0415

        ended_by(error)
    sys.exit(code)


def _run() -> int:
    known = _known()
    if isinstance(known, int):
        return known
    from ingest.services.worker import run_worker  # noqa: PLC0415  imported while the other process was reading
    from ingest.telemetry.logs import begin_logs  # noqa: PLC0415

    settings = known.settings
    begin_logs(settings.log_format, settings.log_level, known.unknown)
    return run_worker(known, _read_again)


def _read_again() -> bytes:
    """Return the settings, packed, as the command line reads them now.

    Raises:
        ConfigError: they cannot be used. The message is the line that the command would print.
    """
    answer, written = os.pipe()
    errors, told = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(answer)
        os.close(errors)
        os.dup2(told, 2)
        _become_command_line(written)
    os.close(written)
    os.close(told)
    with os.fdopen(errors, encoding="utf-8", errors="replace") as lines, os.fdopen(answer, "rb") as pipe:
        # First, because the settings of many sources do not fit into a pipe, and a few lines do.
        data = pipe.read()
        problem = lines.read()
    os.waitpid(pid, 0)
    if not data:
        raise ConfigError(problem.strip().removeprefix("ingest: ") or "the settings cannot be read")
    return data


def _known() -> LoadedSettings | int:
    """Return the settings, or the exit code if there is nothing to run."""
    answer, written = os.pipe()
    # Blocked across the fork, so that only this process reports Ctrl-C.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    try:
        pid = os.fork()
    except OSError as error:
        raise UserError(f"the settings cannot be read, because no process can be started: {error.strerror}") from error
    if not pid:
        os.close(answer)
        _become_command_line(written)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))
    os.close(written)
    with ending_at_once():
        import ingest.services.worker  # noqa: PLC0415
        import ingest.telemetry.logs  # noqa: F401, PLC0415

        with os.fdopen(answer, "rb") as pipe:
            data = pipe.read()
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if data:
        return unpack_settings(data)
    if code < 0:
        raise UserError(f"the process that reads the settings was killed by {signal.Signals(-code).name}")
    return code


def _become_command_line(written: int) -> NoReturn:
    def hand_over(loaded: LoadedSettings, _: object) -> int:
        with os.fdopen(written, "wb") as pipe:
            pipe.write(pack_settings(loaded))
        return 0

    code = 1
    try:
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))
        from ingest.cli import main as run  # noqa: PLC0415  only this process uses it

        run(hand_over)
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else 1
    except BaseException:  # noqa: BLE001  the outermost frame of the process: report why it ends
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
