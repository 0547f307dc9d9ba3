"""Finds the next page in `Link` headers (RFC 8288)."""

import re
from collections.abc import Mapping

from multidict import MultiMapping

_LINK = re.compile(r"<([^<>]*)>((?:\s*;\s*[^\s=;,<>\"]+(?:\s*=\s*(?:\"(?:[^\"\\]|\\.)*\"|[^\s;,\"]*))?)*)")
_REL = re.compile(r";\s*rel\s*=\s*(?:\"([^\"]*)\"|([^\s;,\"]*))", re.IGNORECASE)


def next_link(headers: Mapping[str, str]) -> str | None:
    """Return the target of the first link with `rel=next`, or None without one."""
    lines = headers.getall("Link", []) if isinstance(headers, MultiMapping) else [headers.get("Link") or ""]
    for line in lines:
        for target, parameters in _LINK.findall(line):
            # The first `rel` counts.
            rel = _REL.search(parameters)
            if rel is not None and "next" in (rel[1] or rel[2] or "").lower().split():
                return str(target).strip()
    return None
