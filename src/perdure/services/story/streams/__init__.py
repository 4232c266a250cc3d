"""Streams of a Story: the task that carries a topology, its workers, and what brings packets from outside."""
