"""What people do with the system: the same for the command line, HTTP and the console."""
