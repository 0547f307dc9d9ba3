"""Programs that kill their own process at a named moment."""

import asyncio
import signal
from pathlib import Path

from support import start_program

JOB_VICTIM = Path(__file__).with_name("job_victim.py")


async def run_until_killed(program: Path, *arguments: str, env: dict[str, str], timeout: float = 100) -> None:  # noqa: ASYNC109  of the process
    """Run a program until its moment comes."""
    victim = start_program(program, *arguments, env=env)
    try:
        _, log = await asyncio.to_thread(victim.communicate, timeout=timeout)
    finally:
        victim.kill()
    assert victim.returncode == -signal.SIGKILL, log
