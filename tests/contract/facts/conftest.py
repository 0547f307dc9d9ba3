"""Facts of the newest commands need a server that has them."""

from servers.kinds import WITH_XNACK

collect_ignore = [] if WITH_XNACK else ["test_xnack_facts.py"]
