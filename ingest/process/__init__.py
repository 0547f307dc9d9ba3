"""The life of a process: its supervisor, its signals, its standard streams."""
