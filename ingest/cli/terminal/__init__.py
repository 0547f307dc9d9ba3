"""Output for the terminal: text, tables, progress and help."""
