"""Playbook: NoETL's workflow language, canonical v10. Tokens, gates and pipelines in one YAML document."""

from perdure.dialects.playbook.language import Playbook

__all__ = ["Playbook"]
