"""One reading of a shop's list: which page is requested next, when the list has ended, and what that proves. Pure.

    request ──▶ page, or a fault ──▶ next request | ended | ListFault

A list ends with the shop's own word, or with an empty page. The shop names the next page. Numbers of pages move when an
order changes, because it goes to the end and all others move forward by one place. In a list that is sorted by the time of the last
change, the next page is therefore requested from a time on which several elements agree, and it must begin with orders that are known.
Otherwise, the next number is requested, and such pages are read again until they show no further order.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from ingest.domain.errors import ListFault
from ingest.domain.fetch.division import CursorDivision, Division, cursor_division_of, division_of
from ingest.domain.fetch.list_places import ListPlace, SeenOrders, agreed_time, place_of, times_from
from ingest.domain.fetch.list_run import ListRun, PageSizes, continued_run, continues, is_last, require_progress
from ingest.domain.fetch.listed import SECOND, ListedOrder, ListedPage, ListShape, PageRequest

_MOST_PAGES = 100_000
# How often pages with numbers are read, and how often a time may prove to be wrong.
_MOST_PASSES, _MOST_RETURNS = 4, 3


class Reading:
    """Reads a list once.

    Args:
        shape: of the list.
        since: start of the period.
        until: its end, or None for the time of the first response.
        place: where an earlier reading of the same period has ended.
        read_again: how far before the first response the next reading begins. None if this is the only one of its period.

    Attributes:
        gaps: of the pages so far.
        position: all orders that changed before it were on the pages so far, if the list is sorted.
    """

    def __init__(
        self,
        shape: ListShape,
        since: datetime,
        until: datetime | None,
        place: str | None = None,
        read_again: timedelta | None = None,
    ) -> None:
        begin = place_of(place) or ListPlace(since)
        self.gaps = begin.gaps
        self.position = begin.since
        self._shape = shape
        self._until = until
        self._read_again = read_again
        self._run = continued_run(shape, begin)
        self._before: ListRun | None = None
        self._known = begin.known
        self._seen = SeenOrders()
        if begin.begins_at is not None:
            self._before, self._run = self._run, ListRun(begin.begins_at)
            self._seen.new([ListedOrder(name, at) for name, at in begin.known.items()])
        self._returns = 0
        self._division: Division | CursorDivision | None = None
        self._first_at: datetime | None = None
        self._pages = 0
        self._sizes = PageSizes()
        self._has_ended = False

    @property
    def request(self) -> PageRequest | None:
        """The next request, or None if the list has ended."""
        if self._has_ended:
            return None
        run = self._run
        usual = PageRequest(run.since, self._until, run.cursor, run.number)
        return usual if self._division is None else self._division.part_of(usual)

    @property
    def place(self) -> str:
        """Where another process can continue."""
        run, before = self._run, self._before
        if before is not None:
            return ListPlace(before.since, before.cursor, before.number, run.since, self._known, self.gaps).as_text()
        return ListPlace(run.since, run.cursor, run.number, gaps=self.gaps).as_text()

    def take(self, page: ListedPage, at: datetime) -> list[ListedOrder]:
        """Return the orders of a page that this reading has not returned before, and determine the next request.

        Args:
            page: the response to `request`.
            at: time of the response by the shop's clock, or of the request by ours.

        Raises:
            ListFault: the list does not end, or contradicts itself.
        """
        self._first_at = min(at, self._first_at or at)
        self._pages += 1
        if self._pages > _MOST_PAGES:
            raise ListFault(f"the list has more than {_MOST_PAGES:,} pages")
        run, part = self._run, self._division
        if isinstance(part, CursorDivision) and part.since is not None:
            self._take_tried(part, page)
            return []
        new, fresh = self._seen.new(page.orders), run.seen.new(page.orders)
        run.received += len(fresh)
        self._count(page, new, run)
        if isinstance(part, Division):
            self._take_part(part, page)
            return new
        if self._before is not None:
            before, self._before = self._before, None
            if not continues(page, new, at - self._shape.settled_after):
                self._returns += 1
                self._run = before
                return new
            self.position = max(self.position, run.since)
        run.note(page, has_progress=bool(fresh))
        if page.count and run.passes == 1:
            self._sizes.note(page.count)
        self._continue(page, run, at)
        if part is not None and part.advance(page):
            self._division = None
        return new

    def divide(self) -> bool:
        """Continue after a page that cannot be fetched, with a part of it. Return False if the fault is not an element's."""
        run, part = self._run, self._division
        if part is None:
            self._division = division_of(self._shape, run.number, self._sizes.most) or cursor_division_of(
                self._shape, max(self.position, run.since), self._until
            )
            return self._division is not None
        if not part.fail():
            self._division = None
            return False
        if isinstance(part, Division):
            self._skip_parts(part)
        else:
            self._pass_element(part)
        return True

    # -- the next request ------------------------------------------------------------------------------------------

    def _continue(self, page: ListedPage, run: ListRun, at: datetime) -> None:
        if is_last(self._shape, page, run, self._sizes.most):
            self._end(run, page)
            return
        require_progress(run.idle, page)
        settled = None if not self._shape.is_sorted else agreed_time(page.orders, at - self._shape.settled_after)
        if settled is not None and self._until is not None and settled > self._until + SECOND:
            self._end(run)
            return
        run.is_counted = run.is_counted or self._shape.is_numbered or page.is_counted
        may_return = run.is_counted and self._returns < _MOST_RETURNS
        if settled is not None and may_return and run.may_begin_at(settled, self._shape, page, self._sizes.most):
            self._begin_at(settled, page, run)
            return
        if settled is not None and not run.is_counted:
            self.position = max(self.position, settled)
        run.step(page, self._shape)

    def _begin_at(self, settled: datetime, page: ListedPage, run: ListRun) -> None:
        if self._repeats(run):
            return
        self._before = run
        run.step(page, self._shape)
        self._run = ListRun(settled)
        self._known = times_from(settled - SECOND - self._shape.unit, page.orders)

    def _end(self, run: ListRun, last: ListedPage | None = None) -> None:
        """End the list, by the word of its last page unless the period has ended before."""
        if self._repeats(run):
            return
        self._has_ended, missing = True, 0
        if last is not None and last.has_more is False and run.idle and last.count:
            self.gaps.unproven.append("the last page of the list contains only orders of the pages before")
        if last is not None and last.has_more is None and last.total is not None:
            missing = last.total - run.received
        if self._shape.is_numbered and self._shape.size:
            self.gaps.left_out += max(self._sizes.left_out, missing)
            has_end = last is not None and (last.has_more is not None or last.total is not None)
            self.gaps.add_short_pages(self._sizes.shorter_than(self._shape.size), has_end=has_end)

    # -- pages that may have moved ---------------------------------------------------------------------------------

    def _repeats(self, run: ListRun) -> bool:
        """Read the pages of a run again if they are not proven, and report it if that has not helped."""
        again_from = None if self._read_again is None else (self._first_at or run.since) - self._read_again
        if self.gaps.unread or not run.may_have_moved(self._shape, again_from):
            return False
        if run.passes == _MOST_PASSES:
            moved = f"{run.pages} pages from {run.since:%FT%TZ} on changed faster than they could be read"
            self.gaps.unproven.append(f"{moved}, so orders may be missing")
            return False
        self._run = ListRun(run.since, passes=run.passes + 1)
        return True

    def _count(self, page: ListedPage, new: Sequence[ListedOrder], run: ListRun) -> None:
        """Count the gaps of a page, and the orders that an earlier pass should have shown."""
        if run.passes == 1:
            self.gaps.add_unusable(page.unusable)
        self.gaps.untimed += sum(order.updated_at is None for order in new) if self._shape.has_times else 0
        self.gaps.time_example = self.gaps.time_example or page.unread_time
        end = self._until or self._first_at
        run.found += sum(order.is_within(run.since, end) for order in new)

    # -- parts of a page that fails --------------------------------------------------------------------------------

    def _take_tried(self, parts: CursorDivision, page: ListedPage) -> None:
        """Take a page of the tried period. Its orders are read once more from the time that is found."""
        if not page.orders and page.next is not None:
            # Orders that the shop leaves out show nothing about the time.
            parts.follow(page)
            return
        parts.note_tried(is_after=not any(order in self._seen for order in page.orders))
        self._pass_element(parts)

    def _pass_element(self, parts: CursorDivision) -> None:
        """Continue from a time after the element that cannot be fetched, if it is known."""
        if not parts.is_passed or parts.high is None:
            return
        between = f"changed from {parts.known:%FT%TZ} to {parts.high:%FT%TZ}"
        self.gaps.add_unread(f"at least one that {between}")
        self.gaps.unproven.append(f"orders that {between} may be missing, because the page of one of them fails")
        before, self._run, self._before, self._division = self._run, ListRun(parts.high), None, None
        if parts.high == before.since:
            # The period ends with this element.
            self._end(self._run)

    def _take_part(self, part: Division, page: ListedPage) -> None:
        part.advance(page)
        self._run.note_ids(page)
        require_progress(self._run.repeats, page)
        has_ended = page.has_more is False or (page.total is not None and part.at >= page.total)
        self._skip_parts(part, page if has_ended else None)

    def _skip_parts(self, part: Division, last: ListedPage | None = None) -> None:
        """Continue after the last part. If `last` is given, it is the end of the list."""
        if last is None and not part.is_done:
            return
        run, self._division = self._run, None
        run.received += len(part.unread)
        for index, order_id in part.unread:
            after = f", after the order {order_id}" if order_id else ""
            self.gaps.add_unread(f"element {index + 1:,} from {run.since:%FT%TZ} on{after}")
        # Orders may have moved between the parts, as between pages.
        run.pages, run.is_counted, run.idle, self._sizes.last = run.pages + 2, True, 0, 0
        run.number = part.end if self._shape.counts_elements else run.number + 1
        run.covered = 0 if self._shape.counts_elements else part.end // max(1, self._sizes.most) - run.number
        if last is not None:
            self._end(run, last)
