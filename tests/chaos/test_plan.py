"""The plan of a chaos run keeps its promises for any seed."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.plan import GROUPS, LANES, LAST_RELEASE, SECONDS, Kind, RedisKind, all_of, kinds_with, plan

seeds = st.integers(0, 2**32)


@given(seeds)
def test_the_same_seed_gives_the_same_plan(seed: int) -> None:
    assert plan(seed, 600.0, [*Kind]) == plan(seed, 600.0, [*Kind])


@given(seeds)
def test_every_kind_of_fault_occurs_in_a_minute(seed: int) -> None:
    possible = kinds_with(RedisKind.STANDALONE, [LAST_RELEASE])

    assert {fault.kind for fault in all_of(plan(seed, 60.0, possible))} == set(possible)


@given(seeds, st.sampled_from(RedisKind))
def test_ten_minutes_have_their_share_of_each(seed: int, redis: RedisKind) -> None:
    kinds = Counter(fault.kind for fault in all_of(plan(seed, 600.0, kinds_with(redis))))

    def total(group: str) -> int:
        return sum(kinds[kind] for kind in GROUPS[group])

    assert set(kinds) == set(kinds_with(redis))
    assert total("worker kills") >= 20
    assert total("Redis restarts") >= 5
    assert total("PostgreSQL restarts") >= 5
    assert total("API outages") >= 3


@given(seeds, st.sampled_from([60.0, 600.0]))
def test_faults_of_a_lane_do_not_overlap_and_end_in_time(seed: int, seconds: float) -> None:
    for faults in plan(seed, seconds, [*Kind]).values():
        ends = [0.0, *(fault.at + fault.seconds for fault in faults)]
        assert all(end <= fault.at for end, fault in zip(ends, faults, strict=False))
        assert ends[-1] <= seconds


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_has_a_lane_a_group_and_a_duration(kind: Kind) -> None:
    assert sum(kind in lane.kinds for lane in LANES) == 1
    assert sum(kind in kinds for kinds in GROUPS.values()) == 1
    assert SECONDS[kind][0] <= SECONDS[kind][1]
