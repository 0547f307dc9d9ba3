"""The shapes of the APIs of known shops."""
