"""Lets `python -m ingest` stand for the `ingest` command."""

from ingest.cli import main

if __name__ == "__main__":
    main()
