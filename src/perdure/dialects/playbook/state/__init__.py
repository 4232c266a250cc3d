"""The state of a Playbook's run, its events, and how events change it (`folding`). Nothing is decided here."""
