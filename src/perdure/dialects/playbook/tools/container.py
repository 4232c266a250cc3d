"""`container`: a job in a container, run to its end (PBK-098)."""

from perdure.dialects.playbook.tools.jobs import job

KIND = job("container", required="runtime")
