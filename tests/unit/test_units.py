"""The units of deploy/systemd match the service. `make lint` validates them with systemd."""

from pathlib import Path

import pytest

from ingest.process.supervisor import KILL_MARGIN
from ingest.settings import PREFIX, Settings

UNITS = sorted((Path(__file__).parents[2] / "deploy" / "systemd").glob("*.service"))
SERVICES = [unit for unit in UNITS if "migrate" not in unit.name]


def values(unit: Path, key: str) -> list[str]:
    """Of a key that may be given several times."""
    lines = unit.read_text(encoding="utf-8").splitlines()
    return [line.partition("=")[2] for line in lines if line.startswith(f"{key}=")]


@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.stem)
def test_systemd_kills_later_than_the_supervisor_does(unit: Path) -> None:
    [stop] = values(unit, "TimeoutStopSec")

    assert float(stop) > Settings.model_fields["shutdown_grace"].default + KILL_MARGIN
    # SIGTERM is only sent to the supervisor, because its processes would treat a second one as a request to hurry.
    assert values(unit, "KillMode") == ["mixed"]


@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.stem)
def test_a_wrong_setting_is_not_tried_again_and_everything_else_is(unit: Path) -> None:
    assert values(unit, "Restart") == ["always"]
    assert values(unit, "RestartPreventExitStatus") == ["2"]
    assert values(unit, "StartLimitIntervalSec") == ["0"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_each_variable_is_a_setting_and_passwords_are_credentials(unit: Path) -> None:
    known = {f"{PREFIX}{name.upper()}{end}" for name in Settings.model_fields for end in ("", "_FILE")}
    given = dict(value.split("=", 1) for value in values(unit, "Environment"))
    credentials = {value.partition(":")[0] for value in values(unit, "LoadCredential")}

    passwords = {name: value for name, value in given.items() if "PASSWORD" in name}

    assert given.keys() - passwords.keys() <= known
    assert set(passwords.values()) == {f"%d/{name}" for name in credentials}
