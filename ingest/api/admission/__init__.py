"""Which requests are admitted."""
