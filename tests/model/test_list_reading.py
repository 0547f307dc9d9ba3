"""Random shops, and random readings of their lists: nothing is called complete that lacks an order.

`INGEST_TEST_LIST_STORIES` sets the number of stories, of which 10,000 take a few minutes. `INGEST_TEST_LIST_SEED` plays a single one.
"""

import os
from datetime import timedelta

import pytest
from model.lists.play import counterexample
from model.lists.shapes import URL
from model.lists.story import story_of

from ingest.domain.fetch.listed import OrderList
from ingest.sources.order_lists import list_values
from ingest.upstream.access.endpoint import Endpoint
from ingest.upstream.http.transport import UpstreamLimits
from ingest.upstream.lists.declaration import ListDeclaration
from ingest.upstream.lists.order_list import HttpOrderList, ListOptions
from ingest.upstream.session import ApiSession

STORIES = int(os.environ.get("INGEST_TEST_LIST_STORIES", "200"))
SEED = os.environ.get("INGEST_TEST_LIST_SEED")
SHOWN = 3
# The shortest of a story.
OVERLAP = timedelta(minutes=1)


def reader(session: ApiSession, declared: ListDeclaration) -> OrderList:
    times, pages = list_values(declared)
    options = ListOptions(
        Endpoint(URL), declared, times, pages, UpstreamLimits(30.0, 30.0, 30.0, 1 << 25, 1), OVERLAP, timedelta()
    )
    return HttpOrderList(session, options, lambda _, high: high)


@pytest.mark.timeout(60 + STORIES)
def test_no_reading_is_called_complete_that_lacks_an_order() -> None:
    seeds = range(STORIES) if SEED is None else [int(SEED)]

    broken = [found for seed in seeds if (found := counterexample(story_of(seed), reader)) is not None]

    assert not broken, f"{len(broken)} of {len(seeds)} stories, such as\n\n" + "\n\n".join(broken[:SHOWN])
