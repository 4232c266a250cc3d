"""A document as a graph and as a net, and what a run made of it."""
