"""The user of the command line, for the audit log."""

import os
import pwd


def actor() -> str:
    """`cli:` and the Unix user."""
    try:
        return f"cli:{pwd.getpwuid(os.getuid()).pw_name}"
    except KeyError:
        return f"cli:{os.getuid()}"  # in a container, the user may be nameless
