"""Which sources a command is about."""

import pytest

from ingest.domain.errors import ConfigError
from ingest.domain.source_name import UNNAMED, SeveralSources, UnknownSource, chosen_source, chosen_sources

SHOPS = ("shop-de", "shop-fr")


def test_the_only_source_needs_no_name() -> None:
    assert chosen_source(None, [UNNAMED]) == UNNAMED
    assert chosen_source(None, ["shop-de"]) == "shop-de"
    assert chosen_source("shop-fr", SHOPS) == "shop-fr"


def test_without_a_name_all_sources_are_chosen() -> None:
    assert chosen_sources(None, SHOPS) == ["shop-de", "shop-fr"]
    assert chosen_sources([], SHOPS) == ["shop-de", "shop-fr"]
    assert chosen_sources(["shop-fr", "shop-fr"], SHOPS) == ["shop-fr"]


def test_one_of_several_sources_has_to_be_named() -> None:
    with pytest.raises(SeveralSources, match="--source, from shop-de, shop-fr"):
        chosen_source(None, SHOPS)


def test_an_unknown_name_lists_the_sources() -> None:
    with pytest.raises(UnknownSource, match="no source 'shop-dk': the sources are shop-de, shop-fr") as caught:
        chosen_sources(["shop-de", "shop-dk"], SHOPS)
    assert isinstance(caught.value, ConfigError)
    with pytest.raises(UnknownSource, match="and 980 more"):
        chosen_source("x", [f"s{number}" for number in range(1000)])


def test_without_a_sources_file_no_source_has_a_name() -> None:
    with pytest.raises(UnknownSource, match="no sources file is set: set INGEST_SOURCES"):
        chosen_source("shop-de", [UNNAMED])
