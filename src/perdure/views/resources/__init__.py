"""What is asked about the catalog: resources, documents, providers, schedules and credentials."""
