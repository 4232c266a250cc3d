"""Tasks as workers receive them, their effects and retries, and which of them is charged with a crash."""
