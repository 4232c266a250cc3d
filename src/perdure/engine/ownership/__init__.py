"""Which process owns which runs: partitions, their hand-over, and the runs that others left or only created."""
