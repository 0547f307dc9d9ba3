"""The settings by topic. Each module has a part of `Settings`."""
