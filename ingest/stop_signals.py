"""Which signals ask a command that runs until it is stopped to stop."""

import signal


def stop_signals() -> tuple[signal.Signals, ...]:
    """SIGTERM, Ctrl-C, and SIGHUP, which a terminal sends when it closes; not SIGHUP under `nohup`, where it is ignored."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGTERM, signal.SIGINT, *(() if ignored else (signal.SIGHUP,)))
