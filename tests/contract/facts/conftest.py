"""Facts of the newest commands need a server that has them."""

from servers.kinds import WITH_NEW_COMMANDS

collect_ignore = [] if WITH_NEW_COMMANDS else ["test_new_command_facts.py"]
