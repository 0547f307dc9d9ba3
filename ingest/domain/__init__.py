"""What an order, a delivery and an outcome are: pure, without clocks, sockets or logs."""
