"""What editors ask about a document while it is written: completion, hover, names and where they are used. Pure."""
