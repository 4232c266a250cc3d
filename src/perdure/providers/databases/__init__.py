"""What the database providers share: statements and their values, one transaction per task, JSON-safe results."""
