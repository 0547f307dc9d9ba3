"""Takes the system down, and therefore comes last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deploy.shell import saying

if TYPE_CHECKING:
    from deploy.engine import Docker
    from deploy.project import Project


def test_redis_has_refused_the_service_no_command_in_all_this(system: Project) -> None:
    assert system.refused_commands() == []


def test_every_container_stops_in_order(system: Project) -> None:
    containers = system.containers()

    with saying("stopped everything"):
        system.compose("stop")

    assert {one.service: one.state["ExitCode"] for one in containers} == dict.fromkeys(
        (one.service for one in containers), 0
    )


def test_down_leaves_nothing(docker: Docker, system: Project) -> None:
    system.compose("down", "--volumes", "--remove-orphans")

    assert docker("ps", "--all", "--quiet") == ""
    assert docker("volume", "ls", "--quiet") == ""
    assert set(docker("network", "ls", "--format", "{{.Name}}").split()) == {"host", "none"}
