"""`ingest api-key` as a process. A key is shown once, kept as a digest, and revoked."""

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import Cli

from ingest.domain.api_key import PATTERN


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys"


@pytest.fixture
def plain(plain: Cli, path: Path) -> Cli:
    plain.env["INGEST_API_KEYS_FILE"] = str(path)
    return plain


def names(path: Path) -> list[str]:
    return [json.loads(line)["name"] for line in path.read_text().splitlines()]


def test_a_key_is_shown_once_on_stdout_and_kept_as_its_digest(plain: Cli, path: Path) -> None:
    created = plain.run("api-key", "create", "shop", "--scope", "read", "--scope", "enqueue", "--rate", "100")

    key = created.stdout.rstrip("\n")
    digest = hashlib.sha256(key.encode()).hexdigest()
    listed = plain.run("api-key", "list")
    as_json = json.loads(plain.run("api-key", "list", "--json").stdout)
    assert created.returncode == 0, created.stderr
    assert re.fullmatch(PATTERN, key)
    assert created.stderr == (
        f"created the key shop (ID {digest[:12]}; enqueue read; 100/s, burst 100), shown only here\n"
    )
    assert key not in created.stderr + path.read_text() + listed.stdout + listed.stderr
    assert json.loads(path.read_text())["sha256"] == digest
    assert path.stat().st_mode & 0o777 == 0o600
    assert re.fullmatch(
        rf"shop +{digest[:12]} +enqueue read +100/s, burst 100 +\d{{4}}-\d\d-\d\d", listed.stdout.splitlines()[1]
    )
    assert {"name": "shop", "id": digest[:12], "scopes": ["enqueue", "read"], "rate": 100.0, "burst": 100}.items() <= (
        as_json.items()
    )


def test_a_new_key_as_json_has_its_text_and_all_of_its_properties(plain: Cli) -> None:
    created = plain.run("api-key", "create", "shop", "--scope", "erase", "--json")

    fields = json.loads(created.stdout)
    assert re.fullmatch(PATTERN, fields.pop("key"))
    assert fields.pop("id")
    assert fields.pop("created")
    assert fields == {"name": "shop", "scopes": ["erase"], "rate": None, "burst": None, "sources": None}


def test_keys_are_revoked_by_name_and_by_id_and_what_is_missing_is_told(plain: Cli, path: Path) -> None:
    for name in ("a", "b", "c"):
        plain.run("api-key", "create", name, "--scope", "read")
    b = json.loads(path.read_text().splitlines()[1])["sha256"][:12]

    revoked = plain.run("api-key", "revoke", "a", b, "nobody", "a\x1b[31m")
    again = plain.run("api-key", "revoke", "a")

    assert names(path) == ["c"]
    assert revoked.returncode == 1
    assert "revoked the key a (ID " in revoked.stderr
    assert f"revoked the key b (ID {b})" in revoked.stderr
    assert "there is no key nobody" in revoked.stderr
    assert "\x1b" not in revoked.stderr
    assert (again.returncode, again.stderr) == (1, "there is no key a\n")
    assert plain.run("api-key", "revoke", "c").returncode == 0
    assert plain.run("api-key", "list").stderr == "no API keys\n"


def test_a_name_that_is_taken_is_refused(plain: Cli, path: Path) -> None:
    plain.run("api-key", "create", "shop", "--scope", "read")
    before = path.read_bytes()

    again = plain.run("api-key", "create", "shop", "--scope", "erase")

    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr == "ingest: a key named shop exists: choose another name, or revoke it first\n"
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (("create", "a b", "--scope", "read"), "must be up to 64 letters"),
        (("create", "anonymous", "--scope", "read"), "and not `anonymous` or `nobody`"),
        (("create", "shop"), "give the scopes of the key"),
        (("create", "shop", "--scope", "all"), "'all' is not one of"),
        (("create", "shop", "--scope", "read", "--burst", "5"), "needs --rate"),
        (("create", "shop", "--scope", "read", "--rate", "0"), "--rate"),
        (("create", "shop", "--scope", "read", "--rate", "nan"), "--rate"),
        (("create",), "NAME"),
        (("revoke",), "NAME"),
    ],
)
def test_wrong_use_is_told_with_exit_code_2(plain: Cli, path: Path, given: tuple[str, ...], error: str) -> None:
    done = plain.run("api-key", *given)

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert error in done.stderr
    assert not path.exists()


def test_a_file_has_to_be_named(plain: Cli, tmp_path: Path) -> None:
    del plain.env["INGEST_API_KEYS_FILE"]

    unnamed = plain.run("api-key", "list")
    named = plain.run("api-key", "create", "shop", "--scope", "read", "--file", str(tmp_path / "other"))

    said = "ingest: there is no file of keys: set INGEST_API_KEYS_FILE, or give --file\n"
    assert (unnamed.returncode, unnamed.stderr) == (2, said)
    assert named.returncode == 0
    assert names(tmp_path / "other") == ["shop"]


def test_a_file_that_cannot_be_used_or_written_is_told_in_one_line(plain: Cli, path: Path, tmp_path: Path) -> None:
    path.write_text('{"name": "shop", "sha256": "secret", "scopes": ["read"]}\n')
    folder = str(tmp_path / "missing" / "keys")

    listed = plain.run("api-key", "list")
    created = plain.run("api-key", "create", "shop", "--scope", "read")
    elsewhere = plain.run("api-key", "create", "shop", "--scope", "read", "--file", folder)
    # Not even root may create a file there.
    forbidden = plain.run("api-key", "create", "shop", "--scope", "read", "--file", "/sys/keys")

    unusable = f"ingest: INGEST_API_KEYS_FILE: {path}, line 1: sha256: must be 64 hexadecimal digits, the SHA-256 of the key and not the key\n"
    assert (listed.returncode, listed.stdout, listed.stderr) == (2, "", unusable)
    assert (created.returncode, created.stdout, created.stderr) == (2, "", unusable)
    assert (elsewhere.returncode, elsewhere.stdout) == (1, "")
    assert elsewhere.stderr == f"ingest: cannot change {folder}: the directory {tmp_path / 'missing'} does not exist\n"
    assert (forbidden.returncode, forbidden.stdout, forbidden.stderr.count("\n")) == (1, "", 1)
    assert forbidden.stderr.startswith("ingest: cannot change /sys/keys: ")


def test_a_key_that_cannot_be_printed_is_revoked_again(plain: Cli, path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "ingest", "api-key", "create", "shop", "--scope", "read"],
            stdout=full,
            stderr=subprocess.PIPE,
            env=plain.env,
            check=False,
        )

    assert done.returncode == 1
    assert done.stderr == b"ingest: the key could not be printed, and has been revoked again\n"
    assert path.read_bytes() == b""


def test_keys_that_are_created_at_the_same_time_are_all_kept(plain: Cli, path: Path) -> None:
    given = [f"key-{number}" for number in range(6)]

    running = [plain.start("api-key", "create", name, "--scope", "read") for name in given]
    codes = [process.wait(60) for process in running]

    assert codes == [0] * 6
    assert sorted(names(path)) == given
    assert list(path.parent.iterdir()) == [path]


def test_a_key_may_be_limited_to_sources_which_must_be_those_of_the_sources_file(
    plain: Cli, path: Path, tmp_path: Path
) -> None:
    file = tmp_path / "sources.toml"
    file.write_text(
        "".join(f'[sources.{name}.upstream]\nurl = "https://{name}.example/{{order_id}}"\n' for name in ("a", "b"))
    )
    plain.env["INGEST_SOURCES"] = str(file)

    created = plain.run("api-key", "create", "shop", "--scope", "read", "--source", "b", "--source", "a")
    refused = plain.run("api-key", "create", "other", "--scope", "read", "--source", "c")
    listed = plain.run("api-key", "list")

    assert created.stderr.endswith("; read; no limit; a b), shown only here\n")
    assert json.loads(path.read_text())["sources"] == ["a", "b"]
    assert listed.stdout.splitlines()[1].endswith(" a b")
    assert refused.returncode == 2
    assert "a, b" in refused.stderr
