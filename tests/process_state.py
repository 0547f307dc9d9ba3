"""Answers questions about processes that may end at any moment, also between two questions.

A process tree includes processes that a test did not start itself, such as PostgreSQL's background workers, which come
and go: a process that has ended is an answer here, never an error.
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
    """Its program and arguments; empty if it has ended."""
    try:
        return list(process.cmdline())
    except psutil.NoSuchProcess:
        return []


def is_waiting(process_id: int) -> bool:
    """Whether its main thread waits for something, such as input; True if it has ended."""
    try:
        return bool(psutil.Process(process_id).status() in {psutil.STATUS_SLEEPING, psutil.STATUS_ZOMBIE})
    except psutil.NoSuchProcess:
        return True
