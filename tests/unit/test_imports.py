"""What is imported before a command runs, and when the public API is."""

import subprocess
import sys


def test_a_command_handles_ctrl_c_before_it_imports_what_takes_long() -> None:
    imported = modules_after("import ingest.__main__")

    assert imported & {"asyncio", "pydantic", "ssl", "typer"} == set()


def test_the_package_imports_its_parts_when_they_are_asked_for() -> None:
    imported = modules_after("import ingest")

    assert imported.isdisjoint({"pydantic", "redis", "asyncpg", "aiohttp"})


def modules_after(code: str) -> set[str]:
    listing = f"import sys\n{code}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True)
    return set(done.stdout.split())
