"""Playbook: NoETL's workflow language, canonical v10. Tokens, gates and pipelines in one YAML document.

The language only: Jinja is in `expressions`, and resolving secrets at the worker in `services.playbook`.
"""

from perdure.dialects.playbook.language import Playbook

__all__ = ["Playbook"]
