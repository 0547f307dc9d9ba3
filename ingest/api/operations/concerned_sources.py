"""Rejects a change that concerns sources which the caller may not use. The error names none of them."""

from collections.abc import Collection, Mapping

from ingest.api.http.problems import Problem
from ingest.api.http.routing import Caller
from ingest.operations.backends import Backends
from ingest.operations.control.controls import sharing_quota


def require_all(caller: Caller, sources: Collection[str]) -> None:
    """Check that the caller may use all sources, because workers process all of them.

    Raises:
        Problem: 403 for a limited key.
    """
    _require(caller, sources, "workers process all sources, and the key is limited to some of them")


def require_quota(caller: Caller, sources: Mapping[str, Backends], source: str) -> None:
    """Check that the caller may use all sources that share the quota of this one, because they get the same rate.

    Raises:
        Problem: 403 for a key that is limited to some of them.
    """
    detail = "the quota is shared with sources that the key may not use"
    _require(caller, sharing_quota(sources, source), detail)


def _require(caller: Caller, sources: Collection[str], detail: str) -> None:
    if not all(map(caller.may_use, sources)):
        raise Problem(403, "missing_source", detail)
