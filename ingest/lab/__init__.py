"""Embedded servers, a simulated external API and sample orders for the demo, benchmarks and tests."""
