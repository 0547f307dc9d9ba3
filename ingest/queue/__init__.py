"""Redis: the only room that knows streams, consumer groups and Lua."""
