"""The HTTP API of a server: a table of routes over the verbs of the engine and the views. Needs the extra `server`."""
