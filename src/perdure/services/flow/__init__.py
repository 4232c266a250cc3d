"""What Flow brings besides its pure part: its conformance suite."""
