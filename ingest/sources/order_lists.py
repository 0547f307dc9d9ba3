"""Makes the list of orders of a source from the settings."""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ingest.domain.durations import parse_duration
from ingest.domain.errors import ConfigError
from ingest.domain.fetch.quota import QuotaLimits
from ingest.domain.toml_errors import Keys, describe_error, dotted
from ingest.files.regular import read_text
from ingest.mapping.compiled.conversions import shifted
from ingest.mapping.compiled.minor_units import ISO_4217, STRIPE, in_major_units
from ingest.mapping.compiled.timestamps import timestamp_parser
from ingest.mapping.errors import MappingError
from ingest.settings.names import key_of, setting_name
from ingest.settings.source_file import problem_in_source
from ingest.upstream.access.endpoint import Endpoint
from ingest.upstream.http.proxy import proxy_for
from ingest.upstream.http.transport import UpstreamLimits
from ingest.upstream.lists.declaration import ListAmount, ListDeclaration, ListProblem
from ingest.upstream.lists.order_list import ListOptions
from ingest.upstream.lists.page_reading import Convert, PageReader
from ingest.upstream.lists.requests import ListRequests
from ingest.upstream.lists.times import ListTimes, Parse

if TYPE_CHECKING:
    from ingest.mapping.compiled.mapping import CompiledMapping
    from ingest.settings import Settings

_FIELD = "order_list"
_LARGEST_FILE = 1024 * 1024
# A page may contain hundreds of whole documents. One page is read at a time.
_LARGEST_PAGE = 32 * 1024 * 1024
_LONGEST_OVERLAP = timedelta(days=7)
_LONGEST_LOOK_BACK = timedelta(days=90)


def list_of(
    settings: "Settings",
    endpoint: Endpoint,
    limits: UpstreamLimits,
    environ: Mapping[str, str],
    mapping: "CompiledMapping | None" = None,
) -> ListOptions | None:
    """Return the list that the settings describe, or None without one.

    Args:
        settings: of the source.
        endpoint: for single orders, with the credential.
        limits: of requests for orders.
        environ: the environment of the process, with proxies.
        mapping: of the documents, which recognizes those that are no orders.

    Raises:
        ConfigError: the description cannot be used. The message contains the path of the key.
    """
    if settings.order_list is None:
        if settings.poll:
            name = setting_name(settings.source, _FIELD)
            raise ConfigError(f"{setting_name(settings.source, 'poll')} is set without {name}, the list to poll")
        return None
    try:
        declared = _declared(settings.order_list)
        requests = ListRequests(declared)
        times, reader = list_values(declared, mapping)
        overlap = _duration("overlap", declared.overlap, _LONGEST_OVERLAP)
        look_back = _duration("look_back", declared.look_back, _LONGEST_LOOK_BACK)
    except ListProblem as problem:
        raise _error(settings, problem) from None
    return ListOptions(
        msgspec.structs.replace(
            endpoint,
            url=requests.url,
            method=requests.method,
            body=None if declared.body is None else "{}",
            proxy=proxy_for(requests.url, environ),
        ),
        declared,
        times,
        reader,
        replace(limits, body=max(limits.body, _LARGEST_PAGE)),
        overlap,
        look_back,
        QuotaLimits(declared.rate, declared.burst, rate_header=settings.upstream_rate_header or "", starts_full=True)
        if declared.rate
        else None,
    )


def _declared(text: str) -> ListDeclaration:
    table = _table(text)
    try:
        return msgspec.convert(table, ListDeclaration)
    except msgspec.ValidationError as error:
        problem, keys = describe_error(str(error), (), lambda _: ListDeclaration.__struct_encode_fields__)
        raise ListProblem(problem, *keys) from None


def _table(text: str) -> Any:
    """Return the table of a JSON object, or of the TOML file at a path."""
    try:
        if text.lstrip().startswith("{"):
            return json.loads(text)
        return tomllib.loads(read_text(Path(text), _LARGEST_FILE, "a description of a list"))
    except (ValueError, RecursionError) as error:
        raise ListProblem(f"neither a JSON object nor a TOML file: {error}") from None


def list_values(declared: ListDeclaration, mapping: "CompiledMapping | None" = None) -> tuple[ListTimes, PageReader]:
    """Return the parts that write and read the values of a list, with the conversions of mappings.

    Raises:
        ListProblem: the list cannot be used as it is described.
    """
    times = ListTimes(declared.time, declared.zone, _parse_of(declared))
    convert = _amount_conversion(declared.amount)
    if mapping is None:
        return times, PageReader(declared, times, convert)
    # The parts of an order are not in its list.
    is_whole = declared.complete and not mapping.parts
    return times, PageReader(declared, times, convert, mapping.skips if is_whole else mapping.skips_part)


def _parse_of(declared: ListDeclaration) -> Parse | None:
    """Return the function that reads times in the format of the list. Mappings support the same formats."""
    if "%" not in declared.time:
        return None
    try:
        return timestamp_parser(declared.time, ())[0]
    except MappingError as error:
        raise ListProblem(error.problem, "time") from None


def _amount_conversion(amount: str | ListAmount) -> Convert | None:
    """Return the conversion of an amount. It is the same as in mappings."""
    if isinstance(amount, str) or (amount.minor_units is None and not amount.negate):
        return None
    units, sign = amount.minor_units, -1 if amount.negate else 1
    if isinstance(units, str) and not amount.currency:
        raise ListProblem(f"`minor_units = {units!r}` needs `currency`, the path of the currency", "amount", "currency")
    digits = STRIPE if units == "stripe" else ISO_4217

    def convert(value: Decimal, currency: str | None) -> Decimal:
        if isinstance(units, str):
            return sign * in_major_units(value, currency, digits)
        return sign * shifted(value, units or 0)

    return convert


def _duration(key: str, given: str | float, longest: timedelta) -> timedelta:
    try:
        seconds = parse_duration(given) if isinstance(given, str) else float(given)
    except ValueError as error:
        raise ListProblem(f"{error} (got {given!r})", key) from None
    if not 0 <= seconds <= longest.total_seconds():
        raise ListProblem(f"must be from 0 to {longest.days} days", key)
    return timedelta(seconds=seconds)


def _error(settings: "Settings", problem: ListProblem) -> ConfigError:
    keys: Keys = problem.keys
    if settings.source:
        return problem_in_source(settings, problem.problem, (*key_of(_FIELD), *keys))
    return ConfigError(": ".join([setting_name("", _FIELD), *([dotted(keys)] if keys else []), problem.problem]))
