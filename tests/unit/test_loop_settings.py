"""The threshold of the event loop's watch: none, or one that can be kept."""

import pytest

from ingest.domain.errors import ConfigError
from ingest.settings import load_settings


@pytest.mark.parametrize("value", [0, 0.1, 2.5])
def test_the_threshold_may_be_a_tenth_of_a_second_or_more_or_zero(value: float) -> None:
    assert load_settings(loop_block_warning=value).loop_block_warning == value


@pytest.mark.parametrize("value", [-1, 0.01, "nan", "inf"])
def test_a_threshold_that_is_too_short_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="INGEST_LOOP_BLOCK_WARNING"):
        load_settings(loop_block_warning=value)
