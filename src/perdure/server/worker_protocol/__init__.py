"""The worker protocol: tasks and streaming steps that leave the server, both ends of it."""
