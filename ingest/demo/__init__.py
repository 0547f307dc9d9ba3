"""The service on a bare machine: embedded servers, the simulated external API, sample orders."""
