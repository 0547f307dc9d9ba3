"""The parts of a process of the HTTP API."""
