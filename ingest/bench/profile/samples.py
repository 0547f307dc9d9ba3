"""Reads the samples of all worker processes and counts them by stage."""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from ingest.bench.errors import BenchFailed
from ingest.bench.profile.delivery_stages import STAGES, stage_of


def count_by_stage(directory: Path) -> dict[str, int]:
    """The number of samples of each stage, in the order of a delivery.

    Raises:
        BenchFailed: there is no sample.
    """
    counts: Counter[str] = Counter()
    for file in directory.glob("*.json"):
        for names, count in json.loads(file.read_text()):
            counts[stage_of(names)] += count
    if not counts:
        raise BenchFailed("the workers used too little CPU time for a sample; use more --orders")
    return {stage: counts[stage] for stage in STAGES}


def shares(counts: Mapping[str, int]) -> dict[str, float]:
    """Their percentages."""
    total = sum(counts.values())
    return {stage: 100 * count / total for stage, count in counts.items()}
