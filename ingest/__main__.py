"""The entry point of every command. Small, so that Ctrl-C ends it cleanly while Python still imports the rest."""

from ingest.process.interrupt import ending_at_once


def main() -> None:
    """Run the `ingest` command."""
    with ending_at_once():
        from ingest.cli import main as run  # noqa: PLC0415  a slow import that Ctrl-C may interrupt

    run()


if __name__ == "__main__":
    main()
