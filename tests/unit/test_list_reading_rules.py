"""One reading of a list decides by pages only: which page is next, when the list has ended, and what that proves."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from random import Random

import msgspec
import pytest

from ingest.domain.errors import ListFault
from ingest.domain.fetch.list_clock import ListClock, times_of
from ingest.domain.fetch.list_gaps import ListGaps
from ingest.domain.fetch.list_places import ListPlace, SeenOrders, agreed_time, place_of
from ingest.domain.fetch.listed import ListedOrder, ListedPage, ListShape, PageRequest
from ingest.domain.fetch.reading import Reading
from ingest.domain.fetch.shown_times import ShownTimes, behind
from ingest.domain.operating.polling import PollTurn

START = datetime(2026, 10, 1, 12, 0, 1, tzinfo=UTC)
NOW = START + timedelta(days=1)
SECOND = timedelta(seconds=1)
NUMBERED = ListShape(is_numbered=True, size=10, is_divisible=True, has_times=True, is_sorted=True)
ELEMENTS = msgspec.structs.replace(NUMBERED, counts_elements=True)
CURSORS = ListShape(has_times=True, is_sorted=True)
CURSORS_AND_SIZES = msgspec.structs.replace(CURSORS, size=10, is_divisible=True)

Answer = Callable[[PageRequest], ListedPage]


def orders(
    *numbers: int, at: Callable[[int], datetime] = lambda number: START + number * 5 * SECOND
) -> list[ListedOrder]:
    return [ListedOrder(str(number), at(number)) for number in numbers]


def page(found: Sequence[ListedOrder], **facts: object) -> ListedPage:
    return ListedPage(found, len(found), **facts)  # type: ignore[arg-type]


class Shop:
    """A list that is sorted by time, whose orders may change after each page.

    Attributes:
        requests: so far.
    """

    def __init__(self, many: int, size: int = 10, every: timedelta = 5 * SECOND) -> None:
        self.times = {str(number): START + number * every for number in range(many)}
        self.size = size
        self.shape = NUMBERED
        self.broken: set[str] = set()
        self.left_out: set[str] = set()
        self.says_total = False
        self.after: Callable[[], None] = lambda: None
        self.requests: list[PageRequest] = []

    def __call__(self, request: PageRequest) -> ListedPage | None:
        self.requests.append(request)
        listed = sorted((at, name) for name, at in self.times.items() if at >= request.since - SECOND)
        size = min(request.size or self.size, self.size)
        first = request.number if self.shape.counts_elements else request.number * size
        found = [ListedOrder(name, at) for at, name in listed[first : first + size]]
        if any(order.order_id in self.broken for order in found):
            return None
        self.after()
        shown = [order for order in found if order.order_id not in self.left_out]
        return page(shown, total=len(listed) if self.says_total else None)


def read(shop: Shop, reading: Reading) -> list[str]:
    """Read a list to its end, and return the IDs in the order in which they were returned."""
    seen = []
    while (request := reading.request) is not None:
        assert len(shop.requests) < 2000
        found = shop(request)
        if found is None:
            assert reading.divide()
        else:
            seen += [order.order_id for order in reading.take(found, NOW)]
    return seen


def read_by_cursors(shop: Shop, reading: Reading) -> list[str]:
    """Read a list in which a cursor is the number of the first element, from the beginning of its period. See `read`."""
    seen = []
    while (request := reading.request) is not None:
        assert len(shop.requests) < 2000
        since, at = (request.cursor or f"{request.since.isoformat()} 0").split()
        size = request.size or 10
        found = shop(PageRequest(datetime.fromisoformat(since), number=int(at), size=size))
        if found is None:
            assert reading.divide()
            continue
        following = f"{since} {int(at) + size}" if found.total and int(at) + size < found.total else None
        shown = msgspec.structs.replace(found, next=following, total=None)
        seen += [order.order_id for order in reading.take(shown, NOW)]
    return seen


def reading_of(shop: Shop, place: str | None = None) -> Reading:
    return Reading(shop.shape, START, NOW, place)


# -- the end ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [NUMBERED, ELEMENTS])
@pytest.mark.parametrize("size", [10, 7, 3])
@pytest.mark.parametrize("says_total", [True, False])
def test_a_list_is_read_to_its_end_however_small_its_pages_are(
    shape: ListShape, size: int, *, says_total: bool
) -> None:
    shop = Shop(95, size)
    shop.shape, shop.says_total = shape, says_total
    reading = reading_of(shop)

    assert len(set(read(shop, reading))) == 95
    assert reading.gaps.sentences == []
    assert reading.gaps.short_pages == (0 if size == 10 else size)
    assert bool(reading.gaps.note) == (size < 10)
    # The list has ended by the shop's own word, or with an empty page.
    assert len(shop.requests) < 100


def test_orders_that_the_shop_leaves_out_are_counted() -> None:
    for says_total in (True, False):
        shop = Shop(95)
        shop.says_total, shop.left_out = says_total, {"4", "5", "41"}
        reading = reading_of(shop)
        read(shop, reading)

        assert reading.gaps.left_out >= 3 or not says_total
        assert "left out of pages by the shop" in reading.gaps.sentences[0]


def test_a_last_page_that_repeats_ends_a_list_although_orders_are_left_out_of_each_page() -> None:
    # Magento shows the last page again after it.
    reading = Reading(NUMBERED, NOW - 5 * SECOND, None, read_again=timedelta(minutes=5))
    for number in (0, 5, 10, 10):
        reading.take(page(orders(*range(number, number + 5), at=lambda _: NOW), total=30), NOW)

    assert reading.request is None
    assert reading.gaps.left_out == 15


def test_the_shops_own_word_ends_the_list() -> None:
    one = Reading(msgspec.structs.replace(NUMBERED, has_pages=False), START, NOW)
    one.take(page(orders(1)), NOW)
    pages = Reading(NUMBERED, START, NOW)
    pages.take(page(orders(1), has_more=True), NOW)
    more = pages.request
    pages.take(page(orders(2), has_more=False), NOW)
    cursor = Reading(CURSORS, START, NOW)
    cursor.take(page(orders(1), next="a"), NOW)
    named = cursor.request
    cursor.take(page(orders(2), next="b", has_more=False), NOW)

    assert more is not None
    assert named is not None
    assert (one.request, more.number, named.cursor, cursor.request) == (None, 1, "a", None)


def test_a_list_that_contradicts_itself_is_a_fault() -> None:
    missing = Reading(CURSORS, START, NOW)
    with pytest.raises(ListFault, match="does not name it"):
        missing.take(page(orders(1), has_more=True), NOW)
    same = Reading(CURSORS, START, NOW)
    same.take(page(orders(1), next="a"), NOW)
    with pytest.raises(ListFault, match="repeat"):
        same.take(page(orders(2), next="a"), NOW)


@pytest.mark.parametrize(("found", "most"), [(orders(1, 2), 5), ([], 102)])
def test_pages_without_progress_end_the_reading(found: list[ListedOrder], most: int) -> None:
    reading, numbers = Reading(CURSORS, START, NOW), count()

    def read_on() -> None:
        for number in numbers:
            reading.take(page(found, next=f"cursor {number}"), NOW)

    with pytest.raises(ListFault, match="no order that it has not listed before"):
        read_on()

    assert next(numbers) <= most


def test_a_list_has_a_limited_number_of_pages() -> None:
    reading = Reading(CURSORS, START, NOW)

    def read_on() -> None:
        for number in count():
            reading.take(page([ListedOrder(str(number))], next=f"cursor {number}"), NOW)

    with pytest.raises(ListFault, match="more than 100,000 pages"):
        read_on()


def test_a_period_ends_before_later_orders_of_a_list_without_an_end() -> None:
    reading = Reading(CURSORS, START, START + 20 * SECOND)

    reading.take(page(orders(*range(1, 11)), next="more"), NOW)

    assert reading.request is None


# -- the position ----------------------------------------------------------------------------------------------------


def test_an_order_with_a_later_time_does_not_decide_about_those_behind_it() -> None:
    found = orders(*range(10))
    changed = [*found[:4], ListedOrder("4", NOW), *found[5:9], ListedOrder("9", NOW - timedelta(hours=1))]

    assert agreed_time(found, NOW) == found[8].updated_at
    assert agreed_time(changed, NOW) == found[8].updated_at
    assert agreed_time(found, START + 20 * SECOND) == found[3].updated_at
    assert agreed_time([*found[:1], ListedOrder("x")], NOW) is None


def test_a_time_that_proves_to_be_wrong_is_given_up_for_the_next_number() -> None:
    shop = Shop(30)
    reading = reading_of(shop)
    first = shop(PageRequest(START))
    assert first is not None
    # The last three orders show the time of a change that came later.
    stale = [*first.orders[:-3], *orders(7, 8, 9, at=lambda number: START + timedelta(hours=number))]
    reading.take(page(stale), NOW)
    jumped = reading.request
    reading.take(page([]), NOW)
    returned = reading.request

    assert jumped is not None
    assert jumped.since > START + timedelta(hours=7)
    assert (returned and (returned.since, returned.number)) == (START, 1)
    assert {"10", "29"} <= set(read(shop, reading))


@pytest.mark.parametrize("seed", range(40))
def test_orders_that_change_while_the_list_is_read_hide_none(seed: int) -> None:
    random = Random(seed)
    shop = Shop(random.randint(20, 80), random.randint(3, 10), random.choice((timedelta(), SECOND, 9 * SECOND)))
    shop.says_total = random.random() < 0.5
    left = random.randint(1, 25)
    unchanged = set(shop.times)

    def change() -> None:
        nonlocal left
        if left and random.random() < 0.7:
            left -= 1
            name = random.choice(sorted(shop.times))
            unchanged.discard(name)
            shop.times[name] = NOW + timedelta(seconds=100 - left)

    shop.after = change
    reading = reading_of(shop)

    assert unchanged <= set(read(shop, reading)) or reading.gaps.unproven


def test_a_list_that_changes_faster_than_it_can_be_read_is_not_proven() -> None:
    shop = Shop(40, every=timedelta())
    moving = iter(range(10_000))

    def change() -> None:
        # A new order at the beginning moves all others, once in each pass.
        if shop.requests[-1].number == 2:
            shop.times[f"+{next(moving)}"] = START

    shop.after = change
    reading = reading_of(shop)
    read(shop, reading)

    assert "changed faster than they could be read" in reading.gaps.unproven[0]
    assert next(moving) == 4


def test_pages_that_the_next_reading_covers_are_not_read_again() -> None:
    again = Reading(NUMBERED, NOW - 5 * SECOND, None, read_again=timedelta(minutes=5))
    for number in range(2):
        again.take(page(orders(number, at=lambda _: NOW)), NOW)
    again.take(page([]), NOW)

    assert again.request is None


def test_a_place_is_continued_by_another_process_and_texts_of_others_are_none() -> None:
    shop = Shop(60)
    reading = reading_of(shop)
    for _ in range(3):
        request = reading.request
        assert request is not None
        found = shop(request)
        assert found is not None
        reading.take(found, NOW)
    continued = reading_of(shop, reading.place)
    unsorted = Reading(
        msgspec.structs.replace(NUMBERED, is_sorted=False), START, NOW, ListPlace(START, number=3).as_text()
    )

    assert {"40", "59"} <= set(read(shop, continued))
    assert continued.position > START
    assert unsorted.request == PageRequest(START, NOW, None, 3)
    for text in (None, "@abc", "@0001-01-01T00:00:00", '{"since": 1}', "2"):
        assert place_of(text) is None
    cursor = ListPlace(START, '@{"type":"list_place"}').as_text()
    assert place_of(cursor) == ListPlace(START, '@{"type":"list_place"}')


@pytest.mark.parametrize("read_before", range(1, 7))
def test_no_page_is_read_again_when_another_process_continues(read_before: int) -> None:
    whole, shop = Shop(60), Shop(60)
    read(whole, reading_of(whole))
    reading = reading_of(shop)
    seen: list[str] = []
    for _ in range(read_before):
        request = reading.request
        assert request is not None
        found = shop(request)
        assert found is not None
        seen += [order.order_id for order in reading.take(found, NOW)]
    continued = reading_of(shop, reading.place)
    seen += read(shop, continued)

    assert shop.requests == whole.requests
    assert sorted(seen, key=int) == [str(number) for number in range(60)]
    assert continued.gaps.sentences == []


def test_a_place_with_a_time_that_proves_to_be_wrong_is_continued_by_the_next_number() -> None:
    shop = Shop(30)
    reading = reading_of(shop)
    first = shop(PageRequest(START))
    assert first is not None
    stale = [*first.orders[:-3], *orders(7, 8, 9, at=lambda number: START + timedelta(hours=number))]
    reading.take(page(stale), NOW)
    continued = reading_of(shop, reading.place)
    jumped = continued.request
    continued.take(page([]), NOW)

    assert jumped is not None
    assert jumped.since > START + timedelta(hours=7)
    assert continued.request == PageRequest(START, NOW, None, 1)
    assert {str(number) for number in range(30)} <= {*read(shop, continued)} | {order.order_id for order in stale}


def test_seen_orders_are_remembered_within_a_limit() -> None:
    seen = SeenOrders()

    assert len(seen.new(orders(1, 1, 2))) == 2
    assert seen.new(orders(1, 2)) == []
    for start in range(0, 250_000, 50_001):
        seen.new([ListedOrder(str(number)) for number in range(start, start + 50_001)])
    assert len(seen.new(orders(1))) == 1


# -- pages that fail -------------------------------------------------------------------------------------------------


def test_an_order_that_moves_between_the_parts_of_a_page_is_read() -> None:
    shop = Shop(8)
    shop.broken = {"2"}

    def change() -> None:
        # All others move forward, and the order that has broken the page is repaired.
        shop.broken, shop.times["0"] = set(), NOW

    shop.after = change

    assert set(read(shop, reading_of(shop))) == set(shop.times)


@pytest.mark.parametrize("broken", [{"4"}, {"0", "1", "9"}, {"12", "13", "14", "29"}])
@pytest.mark.parametrize("shape", [NUMBERED, ELEMENTS])
@pytest.mark.parametrize("says_total", [True, False])
def test_an_order_that_breaks_its_page_costs_itself(broken: set[str], shape: ListShape, *, says_total: bool) -> None:
    shop = Shop(30)
    shop.shape, shop.broken, shop.says_total = shape, broken, says_total
    reading = reading_of(shop)

    assert set(read(shop, reading)) == set(shop.times) - broken
    assert reading.gaps.unread >= len(broken)
    assert "each page with one of them fails: element" in reading.gaps.sentences[0]


def test_a_shop_that_fails_is_not_divided_for_long_and_other_lists_not_at_all() -> None:
    failing = Reading(NUMBERED, START, NOW)
    tries = sum(1 for _ in iter(failing.divide, False))

    assert 3 < tries <= 12
    assert failing.request == PageRequest(START, NOW)
    for shape in (
        CURSORS,
        msgspec.structs.replace(NUMBERED, is_divisible=False),
        msgspec.structs.replace(NUMBERED, size=1),
    ):
        assert not Reading(shape, START, NOW).divide()


@pytest.mark.parametrize("says_total", [True, False])
def test_pages_that_repeat_end_the_reading_although_each_is_divided(*, says_total: bool) -> None:
    reading, tries = Reading(msgspec.structs.replace(NUMBERED, size=3), START, NOW), 0
    first = page(orders(1), total=40 if says_total else None)

    def read_first_page() -> None:
        nonlocal tries
        while (request := reading.request) is not None and tries < 100:
            tries += 1
            if request.size == 1:
                reading.take(first, NOW)
            else:
                assert reading.divide()

    with pytest.raises(ListFault, match="the list does not end: 3 pages in a row contain no order that"):
        read_first_page()
    assert tries < 10


@pytest.mark.parametrize("most", [2, 5])
@pytest.mark.parametrize("broken", ["4", "40"])
def test_a_failing_page_does_not_hide_the_later_pages_of_a_shop_that_limits_them(most: int, broken: str) -> None:
    shop = Shop(60, size=most)
    shop.shape, shop.broken = msgspec.structs.replace(NUMBERED, is_sorted=False), {broken}
    reading = reading_of(shop)

    assert set(read(shop, reading)) == set(shop.times) - {broken}
    assert reading.gaps.unread == 1


def test_orders_that_are_missing_at_an_end_within_a_divided_page_are_counted() -> None:
    shop = Shop(18)
    shop.broken, shop.left_out, shop.says_total = {"12"}, {"15", "16"}, True
    reading = reading_of(shop)

    assert set(read(shop, reading)) == set(shop.times) - {"12", "15", "16"}
    assert reading.gaps.left_out == 2


def cursor_shop(broken: set[str]) -> Shop:
    shop = Shop(95, every=timedelta(minutes=7))
    shop.shape, shop.broken, shop.says_total = ELEMENTS, broken, True
    return shop


@pytest.mark.parametrize(
    "left_out", [{"36"}, {"38"}, {"35", "36", "38", "39"}, {str(number) for number in range(1, 95, 2)}]
)
def test_orders_that_the_shop_leaves_out_do_not_hide_where_the_page_of_another_one_fails(left_out: set[str]) -> None:
    shop = cursor_shop({"37"})
    shop.left_out = left_out
    reading = Reading(CURSORS_AND_SIZES, START, NOW)

    seen = read_by_cursors(shop, reading)

    assert set(shop.times) - set(seen) == left_out | {"37"}
    assert reading.gaps.unread == 1
    assert len(shop.requests) < 80


def test_an_order_that_breaks_its_page_at_the_end_of_the_period_ends_the_reading() -> None:
    shop = cursor_shop({"90"})
    until = shop.times["88"]
    reading = Reading(CURSORS_AND_SIZES, START, until)

    seen = read_by_cursors(shop, reading)

    assert {str(number) for number in range(89)} <= set(seen)
    assert reading.gaps.unread >= 1
    assert len(shop.requests) < 80


@pytest.mark.parametrize("broken", [{"0"}, {"37"}, {"59"}, {"12", "13", "44"}])
def test_an_order_that_breaks_its_page_in_a_list_with_cursors_is_passed_by_time(broken: set[str]) -> None:
    shop = cursor_shop(broken)
    reading = Reading(CURSORS_AND_SIZES, START, NOW)

    seen = read_by_cursors(shop, reading)

    assert set(shop.times) - set(seen) == broken
    # Neighbours are passed together, and are in the period that is reported.
    assert reading.gaps.unread == len(broken - {"13"})
    for name in broken:
        periods = [place.split()[-3::2] for place in reading.gaps.places]
        assert any(begin <= f"{shop.times[name]:%FT%TZ}" <= end for begin, end in periods)
    assert "may be missing" in reading.gaps.sentences[-1]
    assert len(shop.requests) < 40 * (len(broken) + 1)


def test_a_shop_that_fails_is_no_bug_in_a_list_of_whole_days() -> None:
    failing = Reading(msgspec.structs.replace(CURSORS_AND_SIZES, unit=timedelta(days=1)), START, None)

    assert sum(1 for _ in iter(failing.divide, False)) <= 12


def test_an_order_that_breaks_its_page_in_a_list_without_an_order_of_times_is_a_fault() -> None:
    unsorted = Reading(ListShape(has_times=True, size=10, is_divisible=True), START, NOW)
    tries = sum(1 for _ in iter(unsorted.divide, False))

    assert tries == 2
    assert unsorted.request is not None
    assert unsorted.request.size is None


def test_many_unread_elements_are_counted_and_some_are_named() -> None:
    gaps = ListGaps(untimed=2, time_example='"soon"', unusable=1)
    for number in range(12):
        gaps.add_unread(f"element {number}")

    assert len(gaps.places) == 10
    assert gaps.sentences[0] == "1 element that cannot be used"
    assert gaps.sentences[1] == '2 elements without a readable time, such as "soon"'
    assert gaps.as_dict()["unread"] == 12


def test_untimed_orders_are_counted_with_an_example() -> None:
    reading = Reading(CURSORS, START, NOW)
    reading.take(ListedPage([ListedOrder("1")], 2, "a", unusable=["element 2 of a page"], unread_time='"soon"'), NOW)
    reading.take(ListedPage([ListedOrder("2")], 1), NOW)

    assert (reading.gaps.untimed, reading.gaps.unusable, reading.gaps.time_example) == (2, 1, '"soon"')


# -- clocks ----------------------------------------------------------------------------------------------------------


def test_the_unit_of_a_time_is_seen_in_it_or_declared() -> None:
    clock, days = ListClock(NOW), ListClock(NOW, unit=timedelta(days=1))
    moments = (START.replace(microsecond=1), START, START.replace(second=0, minute=1), START.replace(second=0))
    midnight = START.replace(hour=0, second=0)

    units = [clock.unit_of(moment) for moment in (*moments, midnight)]
    assert units == [timedelta(), SECOND, timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)]
    assert days.unit_of(moments[3]) == timedelta(days=1)
    assert clock.final_from(moments[0]) == moments[0]


def test_a_row_may_have_changed_within_the_unit_of_its_version() -> None:
    clock, hour = ListClock(NOW, timedelta(minutes=1)), START.replace(second=0)
    early, late = START + timedelta(minutes=1, seconds=1), START + timedelta(minutes=2)

    assert clock.may_have_changed(START, START, early)
    assert not clock.may_have_changed(START, START, late)
    assert not clock.may_have_changed(START, START + SECOND, early)
    assert ListClock(hour + timedelta(minutes=10)).again_before(hour) == hour + timedelta(minutes=7.5)
    assert ListClock(hour + timedelta(hours=3)).again_before(hour) == hour + timedelta(hours=1, seconds=4)
    assert times_of([ListedOrder("1")], clock) == ([None], [None], [None])


@pytest.mark.parametrize("unit", [timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)])
def test_an_order_whose_second_begins_a_longer_unit_is_fetched_once_more_after_this_second(unit: timedelta) -> None:
    # A list of seconds shows a change of this second as a list of minutes or days shows all changes of the unit.
    moment = START.replace(hour=0, minute=0, second=0) + unit
    early, later = ListClock(moment + 7 * SECOND), ListClock(moment + 8 * SECOND)
    fetched_at = moment + timedelta(seconds=0.5)

    assert later.unit_of(moment) == unit
    assert fetched_at < (later.again_before(moment) or START) < later.now
    assert (early.again_before(moment) or fetched_at) <= fetched_at


def test_an_order_is_fetched_once_more_after_its_second_however_late_and_rounded_the_clock_is_read() -> None:
    changed_at, fetches = START.replace(microsecond=400_000), [START.replace(microsecond=500_000)]
    for number in range(60):
        sent_at = changed_at + number * timedelta(seconds=0.7)
        took = timedelta(seconds=number % 3)
        clock = ListClock(sent_at.replace(microsecond=0), sent_at + took - sent_at.replace(microsecond=0))
        before = clock.again_before(START)
        if before is not None and fetches[-1] - clock.ahead < before:
            fetches.append(sent_at + took)

    assert len(fetches) == 2
    assert fetches[1] >= START + 2 * SECOND
    # Another change would have another time.
    assert ListClock(NOW).again_before(changed_at) is None


def test_the_newest_times_show_a_clock_that_is_behind() -> None:
    shown = ShownTimes()
    shown.add([ListedOrder("none"), ListedOrder("future", NOW + SECOND)], NOW)
    first = (shown.newest, shown.until)
    shown.add(orders(3, 1, 2, 5), NOW)
    turn = PollTurn(NOW, 2, 0, None, None, shown_until=START)

    assert first == (None, None)
    assert (shown.newest, shown.until) == (START + 25 * SECOND, START + 15 * SECOND)
    assert behind(shown.newest, turn, NOW) == (NOW - START).total_seconds() - 25
    assert behind(NOW - SECOND, turn, NOW) == 0
    assert behind(None, msgspec.structs.replace(turn, behind=7.0), NOW) == 7
