"""Arguments with secrets, credentials, and the masking of secrets in texts and data."""
