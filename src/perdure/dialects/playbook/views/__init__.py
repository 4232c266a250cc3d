"""What is shown of a Playbook: its execution, its history, its graph. Nothing here changes a run."""
