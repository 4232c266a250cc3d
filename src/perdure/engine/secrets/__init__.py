"""Secrets and credentials that a store keeps encrypted."""
