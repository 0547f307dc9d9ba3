"""Lets Ctrl-C and SIGTERM end a command during its imports, in an event loop, and in a read within an event loop.

It is imported before all other modules, and imports few itself, because until then Ctrl-C prints a traceback.
"""

import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

_Result = TypeVar("_Result")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _CancelOnce:
    """A handler of SIGINT and SIGTERM: cancels a task at the first one, and raises KeyboardInterrupt at others."""

    def __init__(self, cancel_soon: Callable[[], object]) -> None:
        self.received: int | None = None
        self._cancel_soon = cancel_soon

    def __call__(self, number: int, _: object) -> None:
        if self.received is not None:
            raise KeyboardInterrupt(number)
        self.received = number
        self._cancel_soon()


@contextmanager
def ending_at_once() -> Iterator[None]:
    """End the process with exit code 130 at SIGINT, because an exception may get lost while Python imports.

    A background job of a shell ignores SIGINT, and continues.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def run_interruptible(main: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a coroutine like `asyncio.run`, but cancel the task between two callbacks of the loop.

    asyncio's own handler of SIGINT cancels it wherever Python is at that moment. A callback that has found its future
    pending, such as the one of a connection that is refused, then fails to set it, and the loop logs a traceback. SIGTERM has the
    same effect here: a command that a supervisor stops reports how far it came.

    Raises:
        KeyboardInterrupt: SIGINT or SIGTERM was received. Its argument is the signal's number. A second one raises it immediately, like the
            first one does while no process reads the output.
    """
    import asyncio  # noqa: PLC0415  as below

    from ingest.process.standard_streams import LOG_WAIT, has_room_for_output, wait_for_errors  # noqa: PLC0415  as below

    handler: _CancelOnce | None = None

    async def interruptible() -> _Result:
        nonlocal handler
        # A background job of a shell ignores SIGINT.
        own = {
            number: signal.getsignal(number) for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN
        }
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None  # noqa: S101  for the type checker

        def cancel_soon() -> None:
            assert handler is not None  # noqa: S101  for the type checker
            # The loop may be waiting for the reader of standard error, or of standard output.
            wait_for_errors(LOG_WAIT)
            if not has_room_for_output():
                raise KeyboardInterrupt(handler.received)
            loop.call_soon_threadsafe(task.cancel)

        handler = _CancelOnce(cancel_soon)
        for number in own:
            signal.signal(number, handler)
        try:
            return await main
        finally:
            for number, before in own.items():
                signal.signal(number, before)

    try:
        return asyncio.run(interruptible())
    except asyncio.CancelledError:
        if handler is None or handler.received is None:
            raise
        raise KeyboardInterrupt(handler.received) from None
    finally:
        main.close()


@contextmanager
def interrupting_reads() -> Iterator[None]:
    """Let SIGINT and SIGTERM raise KeyboardInterrupt, within `run_interruptible`, while a read may wait for its input.

    There they only cancel the task, which has no effect before its next await, so the read would continue.
    """
    import asyncio  # noqa: PLC0415  it takes three quarters of the time until Ctrl-C is handled

    cancel = {number: handler for number in _SIGNALS if isinstance(handler := signal.getsignal(number), _CancelOnce)}
    from ingest.process.standard_streams import LOG_WAIT, wait_for_errors  # noqa: PLC0415  as above

    def interrupt(number: int, _: object) -> NoReturn:
        # The remaining code may be waiting for the reader of standard error while the exception rises.
        wait_for_errors(LOG_WAIT)
        raise KeyboardInterrupt(number)

    for number in cancel:
        signal.signal(number, interrupt)
    try:
        if any(handler.received is not None for handler in cancel.values()):
            raise asyncio.CancelledError
        yield
    finally:
        for number, handler in cancel.items():
            signal.signal(number, handler)


def _stop(*_: object) -> None:
    # No part has started yet.
    os.write(2, b"stopped\n")
    os._exit(130)


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that stop a long-running command: SIGTERM, SIGINT, and SIGHUP unless `nohup` ignores it."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGTERM, signal.SIGINT, *(() if ignored else (signal.SIGHUP,)))
