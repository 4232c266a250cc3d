"""The page for operators of a server: its unit and its proxy are what the programs accept that read them."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from perdure.cli.main import full_parser

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "server.md"


def block(language: str) -> str:
    match = re.search(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert match is not None
    return match[1]


def test_the_unit_starts_a_server_that_may_stop_in_time() -> None:
    unit = dict(line.split("=", 1) for line in block("ini").splitlines() if "=" in line)
    program, *words = unit["ExecStart"].split()
    asked = full_parser().parse_args(words)

    assert program.endswith("/perdure") and asked.verb == "serve"
    assert asked.grace < int(unit["TimeoutStopSec"]) * 1_000_000
    assert asked.data == f"/var/lib/{unit['StateDirectory']}" and unit["StateDirectoryMode"] == "0700"


def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("there is no systemd-analyze on this machine")
    file = tmp_path / "perdure.service"
    file.write_text(block("ini").replace("/opt/perdure/bin/perdure", "/bin/true"))
    checked = subprocess.run([analyze, "verify", str(file)], capture_output=True, text=True, check=False)

    assert "perdure.service" not in checked.stderr


def test_nginx_accepts_the_location(tmp_path: Path) -> None:
    nginx = shutil.which("nginx")
    if nginx is None:
        pytest.skip("there is no nginx on this machine")
    file = tmp_path / "nginx.conf"
    file.write_text(
        f"pid {tmp_path}/pid; error_log {tmp_path}/errors; events {{}}\n"
        f"http {{ access_log off; server {{ listen 127.0.0.1:8421; {block('nginx')} }} }}\n"
    )
    checked = subprocess.run([nginx, "-t", "-c", str(file)], capture_output=True, text=True, check=False)

    assert checked.returncode == 0, checked.stderr
