"""The parts of a worker process, which has a worker for each source."""
