"""What the database providers share: statements and their values, one transaction per task, results as JSON."""
