"""The settings in a process that has not read them."""

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import SecretStr

from ingest.settings import Settings, load_settings
from ingest.settings.packed import LoadedSettings, pack_settings, unpack_settings

pytestmark = pytest.mark.usefixtures("home")


def test_every_value_arrives_as_it_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGEST_UPSTREAM_TOKEN", "t0ken")
    read = load_settings(concurrency=7)

    settings, sources, unknown, _ = unpack_settings(packed(read, "a line"))

    assert {name: plain(getattr(settings, name)) for name in Settings.model_fields} == {
        name: plain(getattr(read, name)) for name in Settings.model_fields
    }
    assert list(unknown) == ["a line"]
    assert {name: source.concurrency for name, source in sources.items()} == {"": 7}


def test_it_is_known_which_file_a_value_came_from(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "token").write_text("t0ken\n")
    monkeypatch.setenv("INGEST_UPSTREAM_TOKEN_FILE", str(home / "token"))

    settings = unpack_settings(packed(load_settings())).settings

    assert settings.file_of("upstream_token") == home / "token"
    assert settings.file_of("upstream_password") is None


def test_a_secret_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGEST_UPSTREAM_TOKEN", "t0ken")

    settings = unpack_settings(packed(load_settings())).settings

    assert "t0ken" not in repr(settings) + repr(settings.upstream_token) + str(settings.upstream_token)


def test_no_value_can_be_changed() -> None:
    settings = unpack_settings(packed(load_settings())).settings

    with pytest.raises(AttributeError, match="concurrency cannot be changed"):
        settings.concurrency = 5


def test_what_reads_settings_is_not_needed_to_use_them(home: Path) -> None:
    (home / "packed").write_bytes(packed(load_settings()))
    code = (
        "import sys; from ingest.settings.packed import unpack_settings\n"
        "settings = unpack_settings(open('packed', 'rb').read()).settings\n"
        "print(settings.stream, 'pydantic' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "orders False\n"


def plain(value: object) -> object:
    return value.get_secret_value() if isinstance(value, SecretStr) or hasattr(value, "get_secret_value") else value


def packed(settings: Settings, *unknown: str) -> bytes:
    return pack_settings(LoadedSettings(settings, {"": settings}, unknown, {}))
