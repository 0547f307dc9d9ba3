"""The parts that the processes of every long-running command share: their listeners, their stop signals, their ends."""

import asyncio
import resource
import signal
import socket
from collections.abc import Callable, Coroutine
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
# Beside the connections that are the process's purpose: servers, logs, pipes.
OTHER_FILES = 128
# With fewer, a process cannot begin: it has servers, an event loop, a supervisor and its log.
_LEAST_FILES = 32
# Connections that wait to be accepted. The system may allow fewer (net.core.somaxconn).
_BACKLOG = 4096


class AddressTaken(UserError):
    """A port to listen on is in use."""


class TooFewFiles(UserError):
    """The processes may open too few files to begin."""


def listen(what: str, host: str, port: int, advice: str) -> socket.socket:
    """A socket that listens, before the processes are forked that accept its connections.

    Args:
        what: is served there, for messages.
        host: the address.
        port: the port.
        advice: what to do if it cannot be used.

    Raises:
        AddressTaken: if the address cannot be used.
    """
    try:
        # `bind` raises a TypeError for what cannot be a host, and `create_server` then leaves its socket open.
        host.encode("idna")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=_BACKLOG, reuse_port=False)
    except UnicodeError as error:
        advice = f"the host is not a name or an address; {advice}"
        raise AddressTaken(f"{what} cannot listen on {host}:{port}: {advice}") from error
    except OSError as error:
        # Its number is no errno if a name cannot be resolved, and `create_server` adds the address to the text.
        reason = (error.strerror or type(error).__name__).partition(" (while attempting")[0]
        raise AddressTaken(f"{what} cannot listen on {host}:{port}: {reason}; {advice}") from error


def stop_on(lifeline: int, request: Callable[[str], None]) -> None:
    """Ask for a stop at SIGTERM, and when the parent at the other end of the lifeline is gone."""
    loop = asyncio.get_running_loop()
    _on_signal(signal.SIGTERM, partial(request, "SIGTERM"))
    # Blocked since before the fork, see the supervisor.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))

    def parent_gone() -> None:
        loop.remove_reader(lifeline)
        request("the supervisor is gone")

    loop.add_reader(lifeline, parent_gone)


def stop_on_signals(request: Callable[[str], None]) -> None:
    """Ask for a stop at SIGTERM, Ctrl-C, or when the terminal closes: for a process without a supervisor."""
    for number in stop_signals():
        _on_signal(number, partial(request, number.name))
    # Some programs block signals, and let those that they start inherit that.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, stop_signals())


def _on_signal(number: signal.Signals, request: Callable[[], None]) -> None:
    """Let the event loop call `request` at a signal, also if it waits for the reader of the log then: it does no longer."""
    asyncio.get_running_loop().add_signal_handler(number, request)
    # In place of the loop's, which does nothing: it is the signal's number, which Python writes to the loop, that counts.
    signal.signal(number, lambda *_: wait_for_errors(LOG_WAIT))


def run_to_the_end(main: Callable[[], Coroutine[Any, Any, None]]) -> int:
    """Run a process's coroutine in an event loop, and return the exit code: 1 if a server denies access or a setting is invalid."""

    async def to_the_end() -> None:
        try:
            await main()
        finally:
            # The loop removes its handlers as it closes, and a later signal would decide the exit code.
            signal.pthread_sigmask(signal.SIG_BLOCK, stop_signals())
            # So nothing may wait for long from here on.
            wait_for_errors(LOG_WAIT)

    code = 0
    try:
        uvloop.run(to_the_end())
    except* UserError as refused:
        _log.error("refused", problem="; ".join(str(error) for error in refused.exceptions))
        code = 1
    return code


async def unless(stop: asyncio.Event, work: Coroutine[Any, Any, _T]) -> _T | None:
    """The work's result, or None if `stop` comes first: the work is then cancelled."""
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
    # From here until the supervisor's own handlers are in place, a signal waits, so nothing else may wait. What has been caught
    # before is still on its way through the loop: one turn to receive it, one to act on it.
    signal.pthread_sigmask(signal.SIG_BLOCK, stop_signals())
    wait_for_errors(LOG_WAIT)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return not shutdown.requested.is_set()


def allow_connections(count: int, setting: str) -> None:
    """Raise the soft limit of open files, which the children inherit, for this many connections of a process.

    Args:
        count: connections.
        setting: limits their number, for a warning.

    Raises:
        TooFewFiles: a process could not even begin.
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
