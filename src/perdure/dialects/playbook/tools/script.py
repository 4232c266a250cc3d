"""`script`: the same job without a container (PBK-098)."""

from perdure.dialects.playbook.tools.jobs import job

KIND = job("script", required="script")
