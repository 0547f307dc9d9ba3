"""Finds the next page in `Link` headers (RFC 8288), and recognizes pages by number."""

import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

from multidict import MultiMapping

_LINK = re.compile(r"<([^<>]*)>((?:\s*;\s*[^\s=;,<>\"]+(?:\s*=\s*(?:\"(?:[^\"\\]|\\.)*\"|[^\s;,\"]*))?)*)")
_REL = re.compile(r";\s*rel\s*=\s*(?:\"([^\"]*)\"|([^\s;,\"]*))", re.IGNORECASE)
_LONGEST_NUMBER = 7


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


def counts_up(url: str, following: str) -> bool:
    """Whether two URLs differ only by the number of a page or of an element, such as `page=2`."""
    before, after = (dict(parse_qsl(urlsplit(each).query)) for each in (url, following))
    differing = [value for name, value in after.items() if before.get(name) != value]
    return len(differing) == 1 and is_number(differing[0])


def is_number(text: str) -> bool:
    """Whether a text is the number of a page or of an element. A longer one is an ID or a time."""
    return len(text) <= _LONGEST_NUMBER and text.isdigit()
