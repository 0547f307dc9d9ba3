"""Pictures of a terminal from the real output of a command."""

import fcntl
import io
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

# Beginnings of a new screen or a new frame. Everything before the last of them is no longer visible.
_SCREEN = re.compile(rb"\x1b\[H|\x1b\[2J|\x1b\[\?1049h")
_FRAME = re.compile(rb"(?:\r?\x1b\[2K(?:\x1b\[1A)?)+")
_OTHER = re.compile(r"\x1b\[[?>]?[\d;]*[A-Za-ln-z]|\x1b[()=>][0-9A-B]?")


def printed_on_terminal(
    command: Sequence[str],
    *,
    columns: int,
    lines: int = 50,
    seconds: float,
    env: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> str:
    """Run a command on a terminal until it ends or for that many seconds, and return its last screen with colours."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    environment = {**(env or os.environ), "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    environment.pop("COLUMNS", None)
    environment.pop("NO_COLOR", None)
    running = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=folder, start_new_session=True
    )
    os.close(theirs)
    printed = b""
    until = time.monotonic() + seconds
    with suppress(OSError):  # the end of a terminal whose last program has ended
        while time.monotonic() < until:
            if select.select([ours], [], [], 0.1)[0]:
                printed += os.read(ours, 65536)
            elif running.poll() is not None:
                break
    if running.poll() is None:
        os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    os.close(ours)
    return _last_screen(printed)


def _last_screen(printed: bytes) -> str:
    screen = _SCREEN.split(printed)[-1]
    kept: list[str] = []
    for part in re.split(r"(?=\r?\x1b\[2K)", screen.decode(errors="replace")):
        # A frame of a live view first erases the frame before it, line by line from the last.
        erased = re.match(r"\r?\x1b\[2K(\x1b\[1A)?", part)
        if erased and kept:
            kept.pop()
        rest = part[erased.end() :] if erased else part
        kept += re.split(r"\r?\n", rest) if rest else []
    text = "\n".join(kept)
    return _OTHER.sub("", text.replace("\r", ""))


def picture(path: Path, command: str, screen: str) -> None:
    """Write a terminal with a command and its output as SVG. The reader's fonts are used."""
    lines = "\n".join(line.rstrip() for line in screen.splitlines())
    text = Text.from_ansi(re.sub(r"\n{3,}", "\n\n", lines).strip("\n"))
    width = max(len(line) for line in text.plain.splitlines())
    console = Console(record=True, width=max(width, 60), file=io.StringIO(), force_terminal=True)
    console.print(Text.assemble(("$ ", "green"), (command, "bold")))
    console.print(text)
    form = re.sub(r"@font-face \{\{.*?\n    \}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    form = form.replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace")
    console.save_svg(str(path), title=command, theme=MONOKAI, code_format=form, unique_id="terminal")
