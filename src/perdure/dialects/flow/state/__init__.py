"""The state of a Flow's run, its events, and how events change it (`folding`). Nothing is decided or evaluated here."""
