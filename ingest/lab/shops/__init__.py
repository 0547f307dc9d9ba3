"""Simulated shops with state: whole shops of known kinds, for trying a source from login to reconciliation.

Beside `ingest.lab.upstream`, which serves documents by ID very fast, these shops are plain aiohttp applications. Read in
this order: `orders` (an order and its amounts), `making` (orders from the bundled samples), `shop_state` (all orders, and
how they change), `shop_behaviour` (the settings), `shop_modes` and `shop_views` (how lists deviate), `kinds` (the API of each shop), `webhook_sender`, `shop_control` (the
routes that change the shop at run time) and `simulated_shop` (the composition). All state is in memory.
"""
