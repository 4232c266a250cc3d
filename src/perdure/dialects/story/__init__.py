"""Stories: Engrams in a graph, in YAML, as resources."""
