"""Listeners, stop signals and exit codes of the processes of long-running commands."""

import asyncio
import resource
import signal
import socket
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, TypeVar

import uvloop

from ingest.domain.errors import UserError
from ingest.flow.shutdown import Shutdown
from ingest.process.interrupt import stop_signals
from ingest.process.standard_streams import LOG_WAIT, wait_for_errors
from ingest.telemetry.logs import get_logger

_T = TypeVar("_T")
_log = get_logger("app")
# Connections to servers, logs and pipes, in addition to the main connections of a process.
OTHER_FILES = 128
# With fewer, a process cannot start. It needs servers, an event loop, a supervisor and its log.
_LEAST_FILES = 32
# Connections that wait to be accepted. The system may allow fewer (net.core.somaxconn).
_BACKLOG = 4096


class AddressTaken(UserError):
    """A port to listen on is in use."""


class TooFewFiles(UserError):
    """The processes may not open enough files to start."""


def listen(what: str, host: str, port: int, advice: str) -> socket.socket:
    """Open a listening socket, before the processes that accept its connections are forked.

    Args:
        what: the name of the service there, for errors.
        host: the address.
        port: the port.
        advice: how to solve an error.

    Raises:
        AddressTaken: the address cannot be used.
    """
    try:
        # `bind` raises a TypeError for text that cannot be a host, and `create_server` then leaves its socket open.
        host.encode("idna")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=_BACKLOG, reuse_port=False)
    except UnicodeError as error:
        advice = f"the host is not a name or an address; {advice}"
        raise AddressTaken(f"{what} cannot listen on {host}:{port}: {advice}") from error
    except OSError as error:
        # `create_server` adds the address to the text of the error.
        reason = (error.strerror or type(error).__name__).partition(" (while attempting")[0]
        raise AddressTaken(f"{what} cannot listen on {host}:{port}: {reason}; {advice}") from error


def listen_for_metrics(host: str, port: int, setting: str) -> socket.socket | None:
    """Open a listening socket for `/metrics` on the port of this setting, or return None if the port is 0."""
    return listen("/metrics", host, port, f"set INGEST_METRICS_HOST or {setting} (0: none)") if port else None


def stop_on(lifeline: int, request: Callable[[str], None]) -> None:
    """Request a stop at SIGTERM, and when the parent at the other end of the lifeline has ended."""
    loop = asyncio.get_running_loop()
    _on_signal(signal.SIGTERM, partial(request, "SIGTERM"))
    # Blocked since before the fork, see the supervisor.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))

    def parent_gone() -> None:
        loop.remove_reader(lifeline)
        request("the supervisor is gone")

    loop.add_reader(lifeline, parent_gone)


def stop_on_signals(request: Callable[[str], None]) -> None:
    """Request a stop at SIGTERM, Ctrl-C, or when the terminal closes, in a process without a supervisor."""
    for number in stop_signals():
        _on_signal(number, partial(request, number.name))
    # A program that blocks signals passes this on to the programs that it starts.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, stop_signals())


def _on_signal(number: signal.Signals, request: Callable[[], None]) -> None:
    """Let the event loop call `request` at a signal, even while it waits for the reader of the log, which ends then."""
    asyncio.get_running_loop().add_signal_handler(number, request)
    # Replaces the loop's handler, which does nothing, because Python itself writes the signal's number to the loop.
    signal.signal(number, lambda *_: wait_for_errors(LOG_WAIT))


def run_to_the_end(main: Callable[[], Coroutine[Any, Any, None]]) -> int:
    """Run a process's coroutine in an event loop, and return the exit code: 1 if a server denies access or a setting is invalid."""

    async def to_the_end() -> None:
        try:
            await main()
        finally:
            # The loop removes its handlers as it closes, and a later signal would decide the exit code.
            signal.pthread_sigmask(signal.SIG_BLOCK, stop_signals())
            # So no part may wait for long from here on.
            wait_for_errors(LOG_WAIT)

    code = 0
    try:
        uvloop.run(to_the_end())
    except* UserError as refused:
        _log.error("refused", problem="; ".join(problems_of(refused)))
        code = 1
    return code


def problems_of(error: BaseException) -> list[str]:
    """Return the text of an error, or of each error in a group."""
    if isinstance(error, BaseExceptionGroup):
        return [problem for each in error.exceptions for problem in problems_of(each)]
    return [str(error)]


def serve_until_stopped(serving: AbstractAsyncContextManager[None], lifeline: int) -> int:
    """Serve until SIGTERM, or until the supervisor is gone, and return the exit code."""

    async def main() -> None:
        stopped = asyncio.Event()
        stop_on(lifeline, lambda _: stopped.set())
        async with serving:
            await stopped.wait()

    return run_to_the_end(main)


async def unless(stop: asyncio.Event, work: Coroutine[Any, Any, _T]) -> _T | None:
    """Return the result of the work, or cancel the work and return None if `stop` is set first."""
    working = asyncio.create_task(work)
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([working, stopped], return_when=asyncio.FIRST_COMPLETED)
        return await working if working.done() else None
    finally:
        stopped.cancel()
        working.cancel()
        await asyncio.wait([working])


async def done_unless_stopped(shutdown: Shutdown, work: Coroutine[Any, Any, None]) -> bool:
    """Do the work before the processes start. Return False if a stop was requested while it waited."""
    stop_on_signals(shutdown.request)
    await unless(shutdown.requested, work)
    # From here until the supervisor installs its own handlers, a signal waits, so the process must not. A signal that
    # was caught before is still on its way through the loop, which needs one iteration to receive it and one to act on it.
    signal.pthread_sigmask(signal.SIG_BLOCK, stop_signals())
    wait_for_errors(LOG_WAIT)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return not shutdown.requested.is_set()


def allow_connections(count: int, setting: str) -> None:
    """Raise the soft limit of open files, which the children inherit, for this many connections of a process.

    Args:
        count: number of connections.
        setting: the setting that limits this number, for a warning.

    Raises:
        TooFewFiles: a process could not start.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if hard != unlimited and hard < _LEAST_FILES:
        raise TooFewFiles(f"the limit of open files is {hard}: a process needs at least {_LEAST_FILES} (ulimit -n)")
    wanted = count + OTHER_FILES
    if hard != unlimited and hard < wanted:
        _log.warning("few_open_files", allowed=hard, wanted=wanted, setting=setting)
    if soft != unlimited and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard == unlimited else min(wanted, hard), hard))
