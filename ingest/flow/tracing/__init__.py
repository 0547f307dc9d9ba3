"""Traces deliveries, through the ports of the flow. Only part of a worker that traces."""
