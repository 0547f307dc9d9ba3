"""What people do with the system: the same functions for the command line, HTTP and the console.

Each function takes a `Backends`, returns values, and reports progress to a callback. Nothing here prints or knows a terminal.
"""
