"""Executors of tasks: take an assignment, run its provider, report one outcome."""
