"""Readers of lists with a planted fault, which the stories must find."""

from datetime import datetime

import msgspec

from ingest.domain.fetch.listed import ListedPage, ListShape, OrderList, PageRequest


class ShortPageEnds:
    """Takes a page with fewer elements than requested for the last one, whatever the shop says."""

    def __init__(self, inner: OrderList) -> None:
        self._inner = inner

    @property
    def shape(self) -> ListShape:
        """See `OrderList`."""
        return self._inner.shape

    async def page(self, request: PageRequest) -> ListedPage:
        """See `OrderList`."""
        page = await self._inner.page(request)
        if page.count >= self.shape.size:
            return page
        return msgspec.structs.replace(page, next=None, has_more=False)


class LastElementDecides:
    """Continues a sorted list from the time of the last element of each page, wherever that element belongs."""

    def __init__(self, inner: OrderList) -> None:
        self._inner = inner

    @property
    def shape(self) -> ListShape:
        """See `OrderList`."""
        shape = self._inner.shape
        if not shape.is_sorted:
            return shape
        return msgspec.structs.replace(shape, is_numbered=False, is_sorted=False, is_divisible=False)

    async def page(self, request: PageRequest) -> ListedPage:
        """See `OrderList`."""
        if not self._inner.shape.is_sorted:
            return await self._inner.page(request)
        since = request.since if request.cursor is None else datetime.fromisoformat(request.cursor)
        page = await self._inner.page(PageRequest(since, request.until))
        last = page.orders[-1].updated_at if page.orders else None
        has_more = last is not None and last > since
        following = last.isoformat() if last is not None and has_more else None
        return msgspec.structs.replace(page, next=following, has_more=has_more, total=None)
