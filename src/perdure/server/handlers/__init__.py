"""What the native routes do."""
