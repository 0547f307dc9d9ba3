"""Random shops, and random readings of their lists: nothing is called complete that lacks an order.

`INGEST_TEST_LIST_STORIES` sets the number of stories, of which 10,000 take a few minutes. `INGEST_TEST_LIST_SEED` plays a single one.
"""

import os
from collections.abc import Callable

import pytest
from model.lists.play import counterexample
from model.lists.story import story_of
from model.lists.wrong_readers import LastElementDecides, ShortPageEnds

from ingest.domain.fetch.listed import OrderList
from ingest.upstream.lists.order_list import HttpOrderList, ListOptions
from ingest.upstream.session import ApiSession

STORIES = int(os.environ.get("INGEST_TEST_LIST_STORIES", "200"))
SEED = os.environ.get("INGEST_TEST_LIST_SEED")
SHOWN = 3


def reader(session: ApiSession, options: ListOptions) -> OrderList:
    return HttpOrderList(session, options, lambda _, high: high)


@pytest.mark.timeout(60 + STORIES)
def test_no_reading_is_called_complete_that_lacks_an_order() -> None:
    seeds = range(STORIES) if SEED is None else [int(SEED)]

    broken = [found for seed in seeds if (found := counterexample(story_of(seed), reader)) is not None]

    assert not broken, f"{len(broken)} of {len(seeds)} stories, such as\n\n" + "\n\n".join(broken[:SHOWN])


@pytest.mark.timeout(120)
@pytest.mark.parametrize("wrong", [ShortPageEnds, LastElementDecides])
def test_the_stories_find_a_reader_with_a_planted_fault(wrong: Callable[[OrderList], OrderList]) -> None:
    found = (counterexample(story_of(seed), lambda *parts: wrong(reader(*parts))) for seed in range(1000))

    assert any(each is not None for each in found)
