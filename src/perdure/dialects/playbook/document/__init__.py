"""Reading and validating Playbook documents: every problem is reported with its place and its remedy.

The entry point is `reader`. Compiling a valid document is in `plan`.
"""
