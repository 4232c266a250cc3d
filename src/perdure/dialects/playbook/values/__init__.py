"""Results, references and template scopes of a running Playbook. Tool kinds are in `tools`, decisions in `run`."""
