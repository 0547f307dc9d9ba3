"""Commands that run until they are stopped, and the check of their health."""
