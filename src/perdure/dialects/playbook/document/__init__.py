"""Documents: read, validated as a whole, and every problem reported with its place and its remedy."""
