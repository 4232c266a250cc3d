"""The catalog and runs as a Kubernetes API, for `kubectl` and libraries of Kubernetes. It has no store of its own."""
