"""The laboratory: embedded servers, a simulated external API and sample orders, for the demo, benches and tests."""
