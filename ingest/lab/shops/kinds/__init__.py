"""The kinds of simulated shops, one module each, with the documents that their platforms send."""
