"""One file per language: the same work, written down as its users would."""
