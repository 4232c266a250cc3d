"""Perdure runs declarative workflows durably."""
