"""From a validated document to a program: compiler, durations, keychain declarations. Nothing here runs."""
