"""The real kubectl, if this machine has one, with a configuration that `perdure kubeconfig` has printed."""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.server.serving import Server

needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed here")

STORY = """\
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: deploy, labels: {team: shop}}
spec:
  steps:
  - {name: approve, type: gate, with: {timeout: 30m, onTimeout: fail}}
  - {name: done, type: condition, needs: [approve], if: "{{ true }}"}
"""
RUN = """\
apiVersion: runs.bubustack.io/v1alpha1
kind: StoryRun
metadata: {generateName: deploy-, labels: {who: ann}}
spec: {storyRef: {name: deploy}}
"""


@dataclass(frozen=True)
class Kubectl:
    """Calls one server; files are in its folder."""

    home: Path
    config: Path

    @classmethod
    def of(cls, server: Server, *words: str, name: str = "kubeconfig") -> "Kubectl":
        folder = server.commands.folder
        made = server.commands("kubeconfig", "--server", server.url, *words)
        path = folder / name
        path.write_text(made.out)
        path.chmod(0o600)
        return cls(folder, path)

    def start(self, *words: str, stdin: str | None = None, **env: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            ["kubectl", *words],
            cwd=self.home,
            env={"HOME": str(self.home), "PATH": os.environ["PATH"], "KUBECONFIG": str(self.config), **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        return process

    def __call__(self, *words: str, code: int = 0, stdin: str | None = None, **env: str) -> str:
        """What it prints on stdout, and on stderr if it fails."""
        process = self.start(*words, **env)
        out, err = process.communicate(stdin, timeout=120)
        assert process.returncode == code, (words, out, err)
        return out if code == 0 else out + err

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "-o", "json"))

    def write(self, name: str, text: str) -> str:
        (self.home / name).write_text(text)
        return name
