"""Orders, deliveries, outcomes and errors: pure code without clocks, sockets or logs."""
