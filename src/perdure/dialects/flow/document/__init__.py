"""Reading a Flow document: from text to a program, or to its problems. The entry point is `reader.read`."""
