"""Loads a user's function for orders, checks its results, and describes its failures.

A failure is described by the type of the exception and its location. Its text is omitted, because it may quote the order.
"""

import errno
import inspect
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import msgspec

from ingest.domain.errors import ConfigError, TransformFailed
from ingest.domain.orders.clean_json import clean_json
from ingest.domain.orders.order import InvalidDocument, InvalidOrderId, Order, decode_order, parse_order_id
from ingest.files.permissions import NotTrusted, require_trusted

# Orders that one call may return, because all are stored in one transaction.
MOST_ORDERS = 1_000
# Bytes of these orders as JSON. PostgreSQL takes more than a second to store this many.
MOST_BYTES = 32 * 1024 * 1024

_EXHAUSTED = frozenset({errno.EMFILE, errno.ENOMEM})
# Number of chained exceptions that are searched for the cause.
_LONGEST_CHAIN = 20

Function = Callable[[Order, bytes], Any]


class Returned(NamedTuple):
    """One order that the function returned.

    Attributes:
        order_id: its ID.
        body: the order as JSON, or empty if the function returned the given order.
    """

    order_id: str
    body: bytes


def load_function(name: str) -> Function:
    """Load the function `package.module:function`, and search the working directory after installed packages.

    It is not searched if another user may change it, because that user could add modules.

    Raises:
        ConfigError: it cannot be used.
    """
    module_name, _, attribute = name.partition(":")
    places = "in the working directory or among the packages"
    try:
        require_trusted(Path.cwd())
        if os.getcwd() not in sys.path:  # noqa: PTH109  text, as in sys.path
            sys.path.append(os.getcwd())  # noqa: PTH109
    except NotTrusted as error:
        places = f"among the packages. The working directory is not searched: {error.strerror}"
    try:
        with _stop_signals_kept():
            module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and f"{module_name}.".startswith(f"{error.name}."):
            raise _unusable(name, f"no module {error.name} {places}") from error
        raise _unusable(name, f"importing it failed: {error}") from error
    except KeyboardInterrupt:
        raise
    # Includes `SystemExit`, and errors of extensions that do not derive from `Exception`.
    except BaseException as error:
        raise _unusable(name, f"importing it failed: {type(error).__name__}: {error}") from error
    function: Any = getattr(module, attribute, None)
    if function is None:
        raise _unusable(name, f"the module does not contain {attribute}")
    if not callable(function) or inspect.isasyncgenfunction(function):
        raise _unusable(name, "it is not a function, or is an async generator")
    _require_two_arguments(name, function)
    loaded: Function = function
    return loaded


@contextmanager
def _stop_signals_kept() -> Iterator[None]:
    """Restore the signal handlers, because an imported module may set handlers that prevent the worker from stopping."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)


def _require_two_arguments(name: str, function: Function) -> None:
    try:
        inspect.signature(function).bind(None, None)
    except TypeError as error:
        raise _unusable(name, "it does not take two arguments, an order and its document") from error
    except ValueError:
        return  # a function in C without a signature


def _unusable(name: str, why: str) -> ConfigError:
    return ConfigError(" ".join(f"INGEST_TRANSFORM: {name} cannot be used: {why}".split()))


def returned_orders(given: Order, value: object) -> list[Returned]:
    """Return the orders in the function's result, to be checked by `checked_order`.

    Raises:
        TransformFailed: the result is not None, an order or several orders, or is too large.
    """
    returned: list[Returned] = []
    size = 0
    for each in _as_list(value):
        # An order cannot be changed, but its attributes can.
        returned.append(Returned(each.id, b"" if each is given and not each.attributes else _encoded(each)))
        size += len(returned[-1].body)
        if size > MOST_BYTES:
            raise TransformFailed(f"returned more than {MOST_BYTES:,} bytes")
    if len({each.order_id for each in returned}) < len(returned):
        raise TransformFailed("returned two orders with the same ID")
    return returned


def _as_list(value: object) -> list[Order]:
    if value is None:
        return []
    if isinstance(value, Order):
        return [value]
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | Mapping):
        raise TransformFailed(f"returned `{type(value).__name__}` instead of an order or orders")
    orders = list(islice(value, MOST_ORDERS + 1))
    if len(orders) > MOST_ORDERS:
        raise TransformFailed(f"returned more than {MOST_ORDERS:,} orders")
    for each in orders:
        if not isinstance(each, Order):
            raise TransformFailed(f"returned `{type(each).__name__}` in a list of orders")
    return orders


def _encoded(order: Order) -> bytes:
    try:
        parse_order_id(order.id)
    except (InvalidOrderId, TypeError) as error:
        raise TransformFailed("returned an order without a valid ID") from error
    try:
        return msgspec.json.encode(order)
    except Exception as error:
        raise TransformFailed(f"returned an order that cannot be encoded as JSON: `{type(error).__name__}`") from error


def checked_order(given: Order, returned: Returned) -> Order:
    """Check an order that the function returned, like any document.

    Raises:
        TransformFailed: it is not valid. The message contains the location.
    """
    if not returned.body:
        # In another process, the function may have removed the attributes of the given order.
        return msgspec.structs.replace(given, attributes={}) if given.attributes else given
    try:
        return decode_order(clean_json(returned.body), returned.order_id)
    except InvalidDocument as error:
        raise TransformFailed(f"returned an order that is not valid: {error}") from error


def described(error: BaseException, function: Function) -> str:
    """Describe an error of the function by its type and location."""
    name = type(error).__name__
    place = _place(error.__traceback__, function)
    return f"`{name}` at {place}" if place else f"`{name}`"


def is_exhausted(error: BaseException) -> bool:
    """Return whether the process is out of memory, files or threads, possibly because of earlier orders."""
    cause: BaseException | None = error
    for _ in range(_LONGEST_CHAIN):
        if isinstance(cause, MemoryError) or (isinstance(cause, OSError) and cause.errno in _EXHAUSTED):
            return True
        # Python does not define a type for this error.
        if isinstance(cause, RuntimeError) and cause.args == ("can't start new thread",):
            return True
        # A library may have raised another error instead.
        cause = cause and (cause.__cause__ or cause.__context__)
    return False


def _place(trace: TracebackType | None, function: Function) -> str:
    """Return the innermost line in the function's package, or else in any code that it called."""
    # It is None for methods of extensions.
    package = (getattr(function, "__module__", None) or "").partition(".")[0]
    innermost = own = ""
    while trace is not None:
        frame = trace.tb_frame
        module = str(frame.f_globals.get("__name__", "?"))
        innermost = f"{module}:{trace.tb_lineno} in {frame.f_code.co_name}"
        if module.partition(".")[0] == package:
            own = innermost
        trace = trace.tb_next
    return own or innermost
