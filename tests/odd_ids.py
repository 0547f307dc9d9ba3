"""Order IDs that go through every way in and out, and texts that are none."""

import re

from hypothesis import strategies as st

# Characters with a meaning in URLs, JSON, CSV, shells, Redis' keys and patterns, Lua, SQL, markup and terminals.
ODD_IDS = (
    "SO/2026/12",
    "#1001",
    "T3JkZXI6MQ==",
    "gid://shopify/Order/450789469",
    "a  b",
    'it\'s "quoted"',
    "100%25",
    "%2F",
    "a:b:c",
    "{orders}",
    "{order_id}",
    "*?[a-z]",
    "a\\b",
    "a,b",
    "-1001",
    "--help",
    "+1;x=2&y=3",
    "..a",
    "a../.b/..c",
    "%2e%2e/%2e%2e/customers/7",
    "null",
    "1e3",
    "007",
    "=1+1",
    "[red]:smile:[/red]",
    "$(id) `id` ${x}",
    "';DROP TABLE orders;--",
    "<b>&amp;</b>",
    "№ 12/é",
    "e\u0301",
    "\u0710",
    "\u0750",
    "注文-七",
    "הזמנה-12",
    "😀",
    "x" * 128,
    "é" * 127,
)
NO_IDS = (
    "",
    " ",
    " a",
    "a ",
    ".",
    "..",
    "." * 128,
    "x/../../customers/7",
    "../../etc",
    "a/./b",
    "a/..",
    "...\\a",
    "a\\..\\b",
    "a\\../b",
    "a\n",
    "a\tb",
    "a\0",
    "a\x1b[31m",
    "a\x7f",
    "a\x9b",
    "a\xa0b",
    "a\u2028b",
    "\u202ea",
    "a\u200b",
    "\ufeffa",
    "\ud800",
    "\ue000",
    "a\ufffd",
    "a" * 129,
    "é" * 128,
    "😀" * 64,
)


def _is_id(text: str) -> bool:
    return (
        text.isprintable()
        and "\ufffd" not in text
        and text.strip() == text
        and not any(part and set(part) == {"."} for part in re.split(r"[/\\]", text))
        and len(text.encode()) <= 255
    )


order_ids = st.text(min_size=1, max_size=128).filter(_is_id) | st.sampled_from(ODD_IDS)
