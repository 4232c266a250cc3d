"""What is asked about runs: lists, details, steps, graphs, logs and changes, as data and as text."""
