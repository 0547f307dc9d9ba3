"""Operator actions, shared by the command line, the HTTP API and the console.

Each function takes a `Backends`, returns values, and reports progress to a callback. No function prints or depends on a terminal.
"""
