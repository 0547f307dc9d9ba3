"""Redis: the only package with stream commands, consumer groups and Lua."""
