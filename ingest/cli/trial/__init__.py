"""Commands that try the service out: the demo, the simulated external API, and the benchmarks."""
