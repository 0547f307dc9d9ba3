"""Lists that mislead a reader. A backfill finds every order that the shop shows, and reports parts that it could not prove."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from acceptance.misleading_shops import SINCE, START, CursorShop, MisleadingShop, graphql_pages, numbered, query
from scripted_http import Received, ScriptedServer, http, scripted_server
from support import Cli, connected

CASES = Path(__file__).parent / "cases"


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as server:
        yield server


@asynccontextmanager
async def serving(shop: MisleadingShop) -> AsyncIterator[MisleadingShop]:
    async with scripted_server() as server:
        server.answer(shop.respond)
        shop.url = server.url
        yield shop


@pytest.fixture
async def shop() -> AsyncIterator[MisleadingShop]:
    async with serving(MisleadingShop(orders=numbered(600))) as shop:
        yield shop


def own_api(cli: Cli, shop: MisleadingShop, **keys: Any) -> None:
    cli.env |= {"INGEST_UPSTREAM_URL": f"{shop.url}/orders/{{order_id}}", "INGEST_ORDER_LIST": shop.described(**keys)}


def of_kind(cli: Cli, tmp_path: Path, kind: str, url: str, **keys: str) -> None:
    cli.forget_api()
    lines = [f'kind = "{kind}"', f'base_url = "{url}"', *(f'{name} = "{value}"' for name, value in keys.items())]
    file = tmp_path / "sources.toml"
    file.write_text("[sources.shop]\n" + "\n".join(lines) + "\nupstream.tries = 1\nupstream.rate = 1000\n")
    cli.env["INGEST_SOURCES"] = str(file)


async def run(cli: Cli, *arguments: str) -> tuple[int, Any, str]:
    ended = await asyncio.to_thread(cli.run, *arguments, "--json", timeout=50)
    return ended.returncode, json.loads(ended.stdout.splitlines()[-1]) if ended.stdout else {}, ended.stderr


async def counted(cli: Cli) -> tuple[int, Any]:
    """The exit code and the result of a dry run."""
    code, found, error = await run(cli, "backfill", "--since", SINCE, "--dry-run")
    assert found, error
    return code, found


# -- the position ----------------------------------------------------------------------------------------------------


async def test_an_order_that_changed_a_moment_ago_does_not_hide_those_behind_its_place(
    cli: Cli, server: ScriptedServer, tmp_path: Path
) -> None:
    pages = [json.loads((CASES / name).read_text()) for name in ("page1.json", "page2.json")]
    server.answer(graphql_pages([page["data"]["orders"]["nodes"] for page in pages]))
    of_kind(cli, tmp_path, "shopify", server.url, shop="a.myshopify.com", token="t")

    code, found = await counted(cli)

    assert (code, found["state"], found["missing"]) == (0, "done", 6)


@pytest.mark.parametrize("changed", [1, 3, 8])
async def test_changed_orders_at_the_end_of_pages_hide_nothing(cli: Cli, shop: MisleadingShop, changed: int) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    shop.shown = {str(page * 100 - back): now for page in range(1, 7) for back in range(changed)}
    own_api(cli, shop)

    _, found = await counted(cli)

    assert found["missing"] + len(shop.shown) >= 600


async def test_orders_that_change_while_pages_of_one_second_are_read_hide_nothing(
    cli: Cli, shop: MisleadingShop
) -> None:
    shop.orders = numbered(600, timedelta())
    moving = iter(map(str, range(1, 8)))

    def move(_: int) -> None:
        if (name := next(moving, None)) is not None:
            shop.orders[name] = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=1)

    shop.on_page = move
    own_api(cli, shop)

    _, found = await counted(cli)

    assert found["listed"] >= 593
    assert found["missing"] >= 593


# -- the end ---------------------------------------------------------------------------------------------------------


async def test_a_page_from_which_orders_are_left_out_ends_nothing(cli: Cli, shop: MisleadingShop) -> None:
    shop.left_out = {"50"}
    own_api(cli, shop)

    code, found = await counted(cli)

    assert found["missing"] == 599
    assert code == 1
    assert "left out" in found["error"]


@pytest.mark.parametrize("most", [50, 33])
@pytest.mark.parametrize("empty_status", [200, 204])
async def test_a_shop_that_caps_its_pages_is_read_to_the_end(
    cli: Cli, shop: MisleadingShop, most: int, empty_status: int
) -> None:
    shop.most, shop.empty_status = most, empty_status
    own_api(cli, shop)

    assert [(code, found["missing"]) for code, found in [await counted(cli)]] == [(0, 600)]


async def test_the_header_of_woocommerce_ends_the_list_and_a_short_page_does_not(
    cli: Cli, shop: MisleadingShop, tmp_path: Path
) -> None:
    shop.most = 40
    shop.orders = numbered(120)

    def woocommerce(received: Received) -> bytes:
        path = received.line.split()[1].replace("modified_after", "since").replace("per_page", "size")
        return shop.respond(Received(f"GET /orders?{path.partition('?')[2]}", received.headers, b""))

    shop.time_name = "date_modified_gmt"
    shop.read = lambda text: datetime.fromisoformat(text).replace(tzinfo=UTC)
    shop.write = lambda at: f"{at:%Y-%m-%dT%H:%M:%S}"
    shop.says = lambda _page, size, count: {"x_wp_total": str(count), "x_wp_totalpages": str(-(-count // size))}
    async with scripted_server() as server:
        server.answer(woocommerce)
        of_kind(cli, tmp_path, "woocommerce", server.url, consumer_key="k", consumer_secret="s")
        code, found = await counted(cli)

    assert (code, found["missing"]) == (0, 120)
    assert len(shop.pages) < 12


# -- times -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("time", "pattern", "example"),
    [
        ("%d.%m.%Y %H:%M", "%d.%m.%Y %H:%M", ""),
        ("%m/%d/%Y %I:%M %p", "%m/%d/%Y %I:%M %p", ""),
        ("%Y%m%d%H%M%S", "%Y%m%d%H%M%S", ""),
        ("iso", "%d.%m.%Y %H:%M", "01.10.2026 00:01"),
        ("iso", "%Y%m%d%H%M%S", "20261001000100"),
        ("iso", "%m/%d/%Y %I:%M %p", "10/01/2026 12:01 AM"),
    ],
)
async def test_times_are_read_in_the_format_of_the_source_or_reported(
    cli: Cli, shop: MisleadingShop, dsn: str, time: str, pattern: str, example: str
) -> None:
    shop.orders = numbered(40)
    shop.write = lambda at: at.strftime(pattern)
    if time != "iso":
        shop.read = lambda text: datetime.strptime(text, time).replace(tzinfo=UTC)
    own_api(cli, shop, time=time)
    async with connected(dsn) as connection:
        for name, at in shop.orders.items():
            older = at - timedelta(hours=2) if int(name) <= 5 else at
            await connection.execute(
                "INSERT INTO orders (order_id, status, currency, placed_at, line_count, total, lines, version, updated_at,"
                " fetched_at, attempts, enqueued_at, ingested_at) VALUES ($1, 's', 'EUR', $2, 0, 0, '[]', $2, $2, $2, 1, $2, $2)",
                name,
                older,
            )

    code, report, error = await run(cli, "reconcile", "--since", SINCE)

    assert code == 1, error
    assert not report["clean"]
    if example:
        assert (report["untimed"], example in str(report["not_proven"])) == (40, True)
    else:
        assert (report["outdated"]["count"], report["not_proven"]) == (5, [])


# -- faults ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("broken", [{"1", "2", "50"}, {"25", "26", "27", "28"}])
async def test_an_order_that_breaks_its_page_costs_itself_only(
    cli: Cli, shop: MisleadingShop, tmp_path: Path, broken: set[str]
) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    shop.orders = {str(number): now - timedelta(seconds=200 - number) for number in range(1, 51)}
    shop.broken = broken

    def magento(received: Received) -> bytes:
        path = received.line.split()[1].replace("searchCriteria[filter_groups][0][filters][0][value]", "since")
        for name in ("[pageSize]", "[currentPage]"):
            path = path.replace(f"searchCriteria{name}", {"[pageSize]": "size", "[currentPage]": "page"}[name])
        response = shop.respond(Received(f"GET /orders?{path.partition('?')[2]}", received.headers, b""))
        head, _, body = response.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            return response
        items = [{"entity_id": each["id"], "updated_at": each["updated_at"]} for each in json.loads(body)]
        return http(200, json.dumps({"items": items, "total_count": len(shop.orders)}).encode())

    shop.read = lambda text: datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    shop.write = lambda at: f"{at:%Y-%m-%d %H:%M:%S}"
    async with scripted_server() as server:
        server.answer(magento)
        of_kind(cli, tmp_path, "magento", server.url, token="t")
        polled = await run(cli, "poll")

    code, found, error = polled
    assert (code, found.get("enqueued"), found.get("unread")) == (1, 50 - len(broken), len(broken)), error
    assert len(shop.pages) < 120


async def test_an_order_that_breaks_its_page_is_passed_by_time_in_a_list_with_cursors(cli: Cli) -> None:
    broken = {"150", "151", "420"}
    async with serving(CursorShop(orders=numbered(600), broken=broken)) as shop:
        own_api(cli, shop)
        code, found = await counted(cli)

    assert (code, found["state"], found["listed"]) == (1, "failed", 600 - len(broken))
    assert "could not be read" in found["error"]
    assert len(shop.pages) < 200


async def test_a_list_with_cursors_that_has_no_order_of_times_reports_the_page_that_fails(cli: Cli) -> None:
    recent = {str(number): datetime.now(UTC) - timedelta(seconds=200 - number) for number in range(150)}
    async with serving(CursorShop(orders=recent, broken={"120"})) as shop:
        own_api(cli, shop, ascending=False)
        code, found, error = await run(cli, "poll")

    assert code == 1
    assert "500" in error + json.dumps(found)
    assert len(shop.pages) < 40


@pytest.mark.parametrize("status", [400, 404, 410])
async def test_a_cursor_that_expires_costs_no_order(cli: Cli, status: int) -> None:
    async with serving(CursorShop(orders=numbered(600), most_of_a_cursor=3, expired_status=status)) as shop:
        own_api(cli, shop)
        code, found = await counted(cli)

    assert (code, found["state"], found["listed"]) == (0, "done", 600)


async def test_an_empty_page_that_others_follow_ends_nothing(cli: Cli) -> None:
    async with serving(CursorShop(orders=numbered(600), empty_at=3)) as shop:
        own_api(cli, shop)
        code, found = await counted(cli)

    assert (code, found["state"], found["listed"]) == (0, "done", 600)


@pytest.mark.parametrize(
    "element", ['{"id": 2, "sum": NaN}', '{"id": 2, "name": "a\tb"}', '{"sub": {"id": 3}, "id": 2, "sum": 01}']
)
@pytest.mark.parametrize("paging", ["cursor", "link"])
async def test_an_element_that_is_no_json_costs_itself_only_where_the_shop_names_the_next_page(
    cli: Cli, server: ScriptedServer, element: str, paging: str
) -> None:
    def order(number: int) -> str:
        return json.dumps({"id": number, "updated_at": START.isoformat()})

    def respond(received: Received) -> bytes:
        if query(received).get("token"):
            return http(200, f'{{"orders": [{order(4)}], "next": null}}'.encode())
        body = f'{{"orders": [{order(1)}, {element}, {order(3)}], "next": "abc"}}'
        link = f'<{server.url}/orders?token=abc>; rel="next"'
        return http(200, body.encode(), link=link) if paging == "link" else http(200, body.encode())

    server.answer(respond)
    template = "" if paging == "link" else "&token={cursor}"
    described = {
        "url": f"{server.url}/orders?since={{since}}{template}",
        "items": "orders",
        "next": "link" if paging == "link" else "next",
    }
    cli.env |= {
        "INGEST_UPSTREAM_URL": f"{server.url}/orders/{{order_id}}",
        "INGEST_ORDER_LIST": json.dumps(described),
    }

    code, found = await counted(cli)

    assert (code, found["missing"], found["state"]) == (1, 3, "failed")
    assert "element 2 of a page, after the order 1, with the ID 2, is no JSON object" in found["error"]


async def test_a_shop_that_fails_altogether_is_asked_a_few_times(
    cli: Cli, server: ScriptedServer, tmp_path: Path
) -> None:
    server.answer(http(500))
    of_kind(cli, tmp_path, "magento", server.url, token="t")

    code, found, _ = await run(cli, "poll")

    assert (code, found["error"]) == (1, "HTTP 500")
    assert len(server.received) < 40


# -- progress --------------------------------------------------------------------------------------------------------


async def test_the_same_page_under_new_cursors_ends_the_reading_with_an_error(
    cli: Cli, server: ScriptedServer, tmp_path: Path
) -> None:
    page = json.loads((CASES / "endless-page.json").read_text())
    pages = 0

    def amazon(received: Received) -> bytes:
        nonlocal pages
        if "o2/token" in received.line:
            return http(200, b'{"access_token": "a", "expires_in": 3600}')
        pages += 1
        page["pagination"]["nextToken"] = f"@{pages}"
        return http(200, json.dumps(page).encode())

    server.answer(amazon)
    secrets = dict.fromkeys(("client_id", "client_secret", "refresh_token"), "x")
    of_kind(cli, tmp_path, "amazon", server.url, region="eu", marketplaces="A1PA6795UKMFR9", **secrets)
    with (tmp_path / "sources.toml").open("a") as file:
        file.write("list.rate = 100\nlist.burst = 100\n")

    code, found = await counted(cli)

    assert (code, found["state"]) == (1, "failed")
    assert "no order that it has not listed before" in found["error"]
    assert pages < 40


async def test_a_shop_that_ignores_the_number_of_the_page_ends_the_reading_with_an_error(
    cli: Cli, shop: MisleadingShop
) -> None:
    shop.orders = numbered(250, timedelta())
    respond = shop.respond

    def first_page(received: Received) -> bytes:
        return respond(Received(received.line.replace("page=", "ignored="), received.headers, b""))

    async with scripted_server() as server:
        server.answer(first_page)
        shop.url = server.url
        own_api(cli, shop)
        code, found = await counted(cli)

    assert (code, found["state"]) == (1, "failed")
    assert "no order that it has not listed before" in found["error"]
    assert len(shop.pages) < 40


async def test_cursors_of_the_shop_may_look_like_ours(cli: Cli, server: ScriptedServer) -> None:
    names = ["", "@0001-01-01T00:00:00+00:00", '{"v": 1}', "@abc"]

    def respond(received: Received) -> bytes:
        number = names.index(query(received).get("token", ""))
        body = {"orders": [{"id": number, "updated_at": START.isoformat()}], "next": [*names, None][number + 1]}
        return http(200, json.dumps(body).encode())

    server.answer(respond)
    cli.env |= {
        "INGEST_UPSTREAM_URL": f"{server.url}/orders/{{order_id}}",
        "INGEST_ORDER_LIST": json.dumps(
            {"url": f"{server.url}/orders?since={{since}}&token={{cursor}}", "next": "next", "ascending": True}
        ),
    }

    assert [(code, found["missing"]) for code, found in [await counted(cli)]] == [(0, 4)]


# -- odd, but permitted ----------------------------------------------------------------------------------------------

BERLIN = ZoneInfo("Europe/Berlin")


class LocalTimes(MisleadingShop):
    """A list that filters and sorts by local times, of which an hour is repeated when summer time ends."""

    def listed(self, since: datetime) -> list[str]:
        """The IDs since a time, by local times."""
        local = {name: at.astimezone(BERLIN).replace(tzinfo=None) for name, at in self.orders.items()}
        return sorted((name for name, at in local.items() if at >= since), key=lambda name: (local[name], name))


@pytest.mark.parametrize("ascending", [True, False])
async def test_local_times_of_a_repeated_hour_hide_no_order(cli: Cli, *, ascending: bool) -> None:
    written = "%Y-%m-%d %H:%M:%S"
    begin = datetime(2026, 10, 24, 22, tzinfo=UTC)
    orders = {str(number): begin + timedelta(seconds=40 * number) for number in range(600)}
    shop = LocalTimes(orders=orders, write=lambda at: at.astimezone(BERLIN).strftime(written))
    shop.read = lambda text: datetime.strptime(text, written)  # noqa: DTZ007  local
    async with serving(shop):
        own_api(cli, shop, time=written, zone="Europe/Berlin", ascending=ascending)
        code, found = await counted(cli)

    assert (code, found["state"], found["listed"]) == (0, "done", 600)


@pytest.mark.parametrize("ascending", [True, False])
async def test_a_total_that_shrinks_while_the_list_is_read_hides_no_order(cli: Cli, *, ascending: bool) -> None:
    shop = MisleadingShop(orders=numbered(600), says=lambda _page, _size, count: {"X-Total": str(count)})
    removed = [str(number) for number in range(1, 13)]

    def remove(_: int) -> None:
        for name in removed[-3:]:
            shop.orders.pop(name)
            removed.remove(name)

    shop.on_page = remove
    async with serving(shop):
        own_api(cli, shop, total="header:X-Total", ascending=ascending)
        code, found = await counted(cli)

    assert found["listed"] >= 588 if code == 0 else found["error"]


async def test_pages_that_are_numbered_from_zero_in_descending_order_are_all_read(cli: Cli) -> None:
    class Descending(MisleadingShop):
        def listed(self, since: datetime) -> list[str]:
            return MisleadingShop.listed(self, since)[::-1]

        def respond(self, received: Received) -> bytes:
            page = int(query(received)["page"])
            line = received.line.replace(f"page={page}", f"page={page + 1}")
            return MisleadingShop.respond(self, Received(line, received.headers, received.body))

    async with serving(Descending(orders=numbered(250))) as descending:
        own_api(cli, descending, first_page=0, ascending=False)
        code, found = await counted(cli)

    assert (code, found["state"], found["listed"]) == (0, "done", 250)


async def test_a_link_that_repeats_ends_the_reading_with_an_error(cli: Cli, shop: MisleadingShop) -> None:
    shop.says = lambda _page, _size, _count: {"Link": '</orders?since=x&page=2&size=100>; rel="next"'}
    shop.read = lambda _: START
    own_api(cli, shop, url=f"{shop.url}/orders?since={{since}}&size=100", next="link")

    code, found = await counted(cli)

    assert (code, found["state"]) == (1, "failed")
    assert "repeat" in found["error"]
    assert len(shop.pages) < 20


async def test_orders_on_several_pages_with_ids_of_two_kinds_count_once(cli: Cli, server: ScriptedServer) -> None:
    def pages(received: Received) -> bytes:
        number = int(query(received)["page"])
        ids: list[Any] = [[1, "2", 3], ["3", 4, "1"], []][min(number, 3) - 1]
        return http(200, json.dumps([{"id": each, "updated_at": "2026-10-01T00:00:00Z"} for each in ids]).encode())

    server.answer(pages)
    shop = MisleadingShop(url=server.url)
    own_api(cli, shop, ascending=False)
    code, found = await counted(cli)

    assert (code, found["state"], found["listed"]) == (0, "done", 4)
