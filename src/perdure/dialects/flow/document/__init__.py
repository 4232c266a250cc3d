"""Reading a Flow: text to problems or a program. `reading` is the door."""
