"""Reads the state of processes that may end at any moment, even between two reads.

A process tree includes processes that a test did not start itself, such as PostgreSQL's background workers, which come
and go. Therefore, an ended process is a valid state and not an error.
"""

import psutil


def is_alive(process: psutil.Process | int) -> bool:
    """Whether this process, or the one with this process ID, exists and is not a zombie."""
    try:
        found = psutil.Process(process) if isinstance(process, int) else process
        return bool(found.is_running() and found.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def command_of(process: psutil.Process) -> list[str]:
    """Its program and arguments, or an empty list if it has ended."""
    try:
        return list(process.cmdline())
    except psutil.NoSuchProcess:
        return []


def is_waiting(process_id: int) -> bool:
    """Whether its main thread waits, for example for input, or has ended."""
    try:
        return bool(psutil.Process(process_id).status() in {psutil.STATUS_SLEEPING, psutil.STATUS_ZOMBIE})
    except psutil.NoSuchProcess:
        return True
