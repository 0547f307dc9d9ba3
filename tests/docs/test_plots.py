"""The panels of the dashboards can be drawn, for reports and pictures."""

from pathlib import Path

import pytest
from deploy.plots import draw
from deploy.watching import Answer, Series, panels, read_dashboards

BOARDS = read_dashboards()


@pytest.mark.parametrize("name", BOARDS)
def test_every_panel_can_be_drawn(tmp_path: Path, name: str) -> None:
    times = [1_800_000_000.0, 1_800_000_010.0]
    found = Series({"le": "1"}, ((times[0], 0.03), (times[1], 0.04)))
    answered = [(panel, [Answer(target, [found]) for target in panel.targets]) for panel in panels(BOARDS[name])]

    draw(tmp_path / "board.png", name, answered, times)

    assert (tmp_path / "board.png").stat().st_size
