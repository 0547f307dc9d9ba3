"""The source that the settings describe has their quota and their transform."""

from ingest.domain.fetch.quota import QuotaLimits
from ingest.settings import load_settings
from ingest.sources.from_settings import source_of
from ingest.sources.source import TransformOptions


def test_a_quota_has_the_rate_the_burst_and_the_concurrency_of_the_settings() -> None:
    settings = load_settings(upstream_rate=100, upstream_burst=5, upstream_concurrency=7)

    assert source_of(settings, {}).quota == QuotaLimits(100.0, 5, 7)


def test_a_transform_has_the_processes_the_timeout_and_the_memory_of_the_settings() -> None:
    settings = load_settings(
        transform="shop:change", transform_processes=2, transform_timeout=3.0, transform_memory=400_000_000
    )

    assert source_of(settings, {}).transform == TransformOptions("shop:change", 2, 3.0, 400_000_000)


def test_a_rate_in_points_is_divided_by_the_points_of_a_request() -> None:
    settings = load_settings(upstream_rate=1000, upstream_cost=40, upstream_burst=200)

    assert source_of(settings, {}).quota == QuotaLimits(25.0, 5, 0, 40.0)
