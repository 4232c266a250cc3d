"""What NoETL's own clients call, for Playbooks."""
