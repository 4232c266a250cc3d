"""The command line. Data goes to stdout, talk to stderr; what it knows of runs it learns from the engine's client."""
