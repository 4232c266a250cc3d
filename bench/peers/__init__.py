"""One file per peer: what to install, and the workloads as its users would write them. Nothing of Perdure is here."""
