"""What is known of a document: its problems, what it refers to, and the documents that it starts."""
