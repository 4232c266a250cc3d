"""From a validated document to a program: compiler, provider contracts, schemas. Nothing here runs or changes state."""
