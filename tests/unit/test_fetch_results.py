"""Results of requests to the external API."""

import gc
import time
import weakref

import pytest

from ingest.domain.errors import ListFault
from ingest.domain.fetch.exchange import Exchange
from ingest.domain.fetch.result import Failed, document_of


def raised() -> "weakref.ref[ListFault]":
    fault = ListFault("no list")
    with pytest.raises(ListFault):
        document_of(Failed(fault, Exchange((), time.monotonic())))
    return weakref.ref(fault)


def test_a_fault_that_was_raised_is_freed() -> None:
    fault = raised()

    gc.collect()

    assert fault() is None
