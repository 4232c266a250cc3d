"""Schedules of every language: which times are due, each started once over crashes and servers; backfill and pause."""
