"""Where redirects lead, and what is said of an answer that is no document."""

from asyncio import StreamReader, StreamWriter
from dataclasses import replace
from pathlib import Path

import pytest
from raw_http import LIMITS, ORDER, TOKEN, Connect, answering, http, serving

from ingest.domain.delivery import DeadReason
from ingest.domain.errors import PermanentFault, TransientFault


@pytest.mark.parametrize("redirects", [5, 6])
async def test_five_redirects_are_followed_and_no_more(connect: Connect, redirects: int) -> None:
    async def count_down(head: bytes, _: StreamReader, writer: StreamWriter) -> None:
        left = int(head.split(b"/")[1].split(b" ")[0])
        to = f"Location: /{left - 1}"
        writer.write(
            http(b"", to, "Content-Length: 0", status="302 Found") if left else http(b"{}", "Content-Length: 2")
        )

    async with serving(count_down) as port, connect(f"http://127.0.0.1:{port}/{{order_id}}") as client:
        if redirects == 5:
            assert (await client.fetch("5")).body == b"{}"
        else:
            with pytest.raises(TransientFault):
                await client.fetch("6")


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 Other", "307 Temporary", "308 Permanent"])
async def test_each_kind_of_redirect_is_followed(connect: Connect, status: str) -> None:
    async with answering(http(b"{}", "Content-Length: 2")) as (there, asked):
        moved = http(b"moved", f"Location: {there.replace('{order_id}', 'x')}", "Content-Length: 5", status=status)
        async with answering(moved) as (template, _), connect(template) as client:
            body = (await client.fetch(ORDER)).body

    assert body == b"{}"
    assert asked[0].startswith(b"GET /orders/x HTTP/1.1\r\n")


@pytest.mark.parametrize("scheme", ["file", "ftp", "gopher", "dict"])
async def test_a_redirect_out_of_http_is_not_followed(connect: Connect, tmp_path: Path, scheme: str) -> None:
    (tmp_path / "secret").write_text("{}")
    location = f"{scheme}://127.0.0.1{tmp_path}/secret" if scheme != "file" else f"file://{tmp_path}/secret"
    moved = http(b"", f"Location: {location}", "Content-Length: 0", status="302 Found")

    async with answering(moved) as (template, _), connect(template) as client:
        with pytest.raises(TransientFault):
            await client.fetch(ORDER)


async def test_the_token_goes_with_a_redirect_on_the_same_origin_and_to_no_other_name_of_it(connect: Connect) -> None:
    asked: list[bytes] = []

    async def lead_on(head: bytes, _: StreamReader, writer: StreamWriter) -> None:
        asked.append(head)
        to = ["/here", f"http://localhost:{port}/there"][len(asked) - 1] if len(asked) < 3 else ""
        found = http(b"", f"Location: {to}", "Content-Length: 0", status="302 Found")
        writer.write(found if to else http(b"{}", "Content-Length: 2"))

    async with serving(lead_on) as port, connect(f"http://127.0.0.1:{port}/{{order_id}}", LIMITS, TOKEN) as client:
        await client.fetch(ORDER)

    assert [TOKEN.encode() in head for head in asked] == [True, True, False]


async def test_a_redirect_to_nowhere_is_a_request_that_was_refused(connect: Connect) -> None:
    async with (
        answering(http(b"", "Content-Length: 0", status="302 Found")) as (template, _),
        connect(template) as client,
    ):
        with pytest.raises(PermanentFault, match="302") as fault:
            await client.fetch(ORDER)

    assert fault.value.reason is DeadReason.REJECTED


@pytest.mark.parametrize("body", [b"x" * 5_000, b"x" * 10])
async def test_the_status_counts_and_not_the_body_that_comes_with_it(connect: Connect, body: bytes) -> None:
    # Over the limit of a document, or broken off: either would mean something else without the status.
    gone = http(body, "Content-Length: 5000", status="410 Gone")

    async with answering(gone) as (template, _), connect(template, replace(LIMITS, body=1_000)) as client:
        with pytest.raises(PermanentFault) as fault:
            await client.fetch(ORDER)

    assert fault.value.reason is DeadReason.NOT_FOUND


@pytest.mark.parametrize(
    "answer",
    [
        b"nonsense\r\n\r\n",
        http(b"\xff\xff\xff\xff", "Content-Encoding: deflate", "Content-Length: 4"),
        http(b"", "Location: ?", "Content-Length: 0", status="302 Found"),
        http(b"", "Location: ftp://x/?key=s3cr3t", "Content-Length: 0", status="302 Found"),
        http(b"", "Location: http://[?key=s3cr3t", "Content-Length: 0", status="302 Found"),
        http(b"", "Content-Length: 0", status="500 Oh"),
    ],
)
async def test_a_key_in_the_url_is_in_no_fault(connect: Connect, answer: bytes) -> None:
    async with (
        answering(answer) as (template, _),
        connect(template.replace("http://", "http://user:s3cr3t@") + "?key=s3cr3t") as client,
    ):
        with pytest.raises(TransientFault) as fault:
            await client.fetch(ORDER)

    assert "s3cr3t" not in str(fault.value)
