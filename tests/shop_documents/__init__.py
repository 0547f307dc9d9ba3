"""Documents of orders as each kind of shop writes them, with totals computed by the shop's own arithmetic.

The arithmetic follows the documentation of each shop, and shares no code with mappings or with simulated shops.
"""
