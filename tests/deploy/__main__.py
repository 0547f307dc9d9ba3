"""`python -m deploy`: prepares the machine, runs the tests, and removes everything again."""

from __future__ import annotations

import argparse
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deploy import machine, standins
from deploy.build import Built, build
from deploy.engine import Docker, engine
from deploy.machine import NotThisMachine
from deploy.project import LEFT_OUT, Project, copy_of_the_tree
from deploy.shell import CommandFailed, end_commands, run, say, saying, seconds_so_far
from deploy.stage import Stage

_HERE = Path(__file__).parent
# In this order, because each begins with the state after the previous one.
_CHAPTERS = (
    *("image", "up", "accounts", "commands_in_containers", "api_in_containers"),
    *("faults", "watching", "cluster_in_containers", "down"),
)


def main() -> int:
    """Run all checks. The exit code is 1 if any of them fails."""
    parser = argparse.ArgumentParser(prog="deploy", description=__doc__)
    parser.add_argument("--plots", type=Path, default=None, help="draw the dashboard's panels into this folder")
    plots = parser.parse_args().plots
    if reason := machine.reason_to_skip():
        sys.stdout.write(f"skipped: {reason}\n")
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with machine.alone():
            code = left = 1
            try:
                code = _on_a_stage(plots and plots.resolve())
            finally:
                left = _clear_up()
            return left or code
    except NotThisMachine as error:
        say(str(error))
        return 1


def _on_a_stage(plots: Path | None) -> int:
    try:
        machine.install()
        machine.remember()
        with engine() as docker:
            return _tested(_prepare(docker, plots))
    except CommandFailed as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        say("stopped")
        return 130


def _prepare(docker: Docker, plots: Path | None) -> Stage:
    """Make all images, side by side, as most of the time goes by waiting."""
    tree = copy_of_the_tree()
    run(tree / "deploy/secrets/generate")
    system = Project(docker, tree)

    def python() -> Built:
        standins.make_python()
        standins.import_python(docker)
        return build(docker, tree, "order-ingest:latest")

    def servers() -> None:
        standins.make_servers()
        names = {name: facts["image"] for name, facts in system.services.items() if "build" not in facts}
        standins.import_servers(docker, names)

    with saying("all images are there"), ThreadPoolExecutor() as pool:
        making_image, making_servers = pool.submit(python), pool.submit(servers)
        try:
            making_servers.result()
            image = making_image.result()
        except BaseException:
            end_commands()
            raise
    standins.forget_files()
    return Stage(docker, image, system, plots)


def _tested(stage: Stage) -> int:
    say(f"{LEFT_OUT} is left out: Debian has no package of it, so its service is checked by schema only")
    options = [
        "--verbose",
        "--no-header",
        "--capture=no",
        "--tb=short",
        "--durations=8",
        f"--confcutdir={_HERE}",
        "-pno:cacheprovider",
    ]
    return int(pytest.main([*options, *(str(_HERE / f"test_{chapter}.py") for chapter in _CHAPTERS)], plugins=[stage]))


def _clear_up() -> int:
    # Never interrupted, because remains would disturb other programs.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with saying("removed containers, volumes, networks, images, the engine and its rules in the packet filter"):
        left = machine.restore()
    for line in left:
        say(f"not removed: {line}")
    say(f"all in all {seconds_so_far():.0f} s")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
