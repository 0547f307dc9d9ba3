"""The parts that read the list of orders of a source."""
