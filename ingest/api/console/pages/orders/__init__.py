"""The pages for the list of orders, for one order, and for changes of selected orders."""
