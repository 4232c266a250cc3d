"""For your own tests: a clock you move by hand, and a world that crashes and boots on demand."""
