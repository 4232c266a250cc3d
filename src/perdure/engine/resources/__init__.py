"""The catalog, the documents that are validated against it, and runs that are shown as resources."""
