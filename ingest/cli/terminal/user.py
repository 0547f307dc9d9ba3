"""Who uses the command line, for records of what was changed."""

import os
import pwd


def actor() -> str:
    """`cli:` and the Unix user."""
    try:
        return f"cli:{pwd.getpwuid(os.getuid()).pw_name}"
    except KeyError:
        return f"cli:{os.getuid()}"  # in a container, the user may have no name
