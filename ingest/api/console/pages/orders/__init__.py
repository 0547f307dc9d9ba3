"""The pages about orders: the list, one order, and changes of selected orders."""
