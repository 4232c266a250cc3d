"""What is shown of a Flow: its Result, its graph, and comparisons of Results. Nothing here changes a run."""
