"""What can be known of a document before it runs, and of runs without executing anything. Pure."""
