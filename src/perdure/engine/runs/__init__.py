"""How runs are started, kept in memory, shown, sent messages and removed."""
