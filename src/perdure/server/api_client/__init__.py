"""Clients of a server: the interface of the engine, and of the command line, over HTTP."""
