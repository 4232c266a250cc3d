"""TLS of a server, and its stop (SRV-001, SRV-028)."""

import signal
import ssl
import stat
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from perdure.server.tls import SERVER_FILES, OwnCertificate
from tests.cli.commandline import CommandLine
from tests.server.serving import RETURNS, Api, Server


def test_tls_with_an_authority_of_its_own(tmp_path: Path) -> None:
    """SRV-028: a client that trusts the authority is served, any other is not; keys are private."""
    server = Server.start(tmp_path, "--tls", "auto")
    assert server.url.startswith("https://")
    folder = tmp_path / "perdure.db-server"
    (tmp_path / "ca.pem").write_text(CommandLine(tmp_path)("ca").out)
    trusting = Api(server.url, server.admin.token, str(tmp_path / "ca.pem"))
    assert trusting("GET", "/api/v1/whoami").status == 200
    with pytest.raises(ssl.SSLError):
        Api(server.url)("GET", "/livez")
    for name in ("ca.key", "server.key"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    server.stop()
    folder.chmod(0o755)
    refused = CommandLine(tmp_path)("serve", "--listen", "127.0.0.1:0", "--tls", "auto", code=1)
    assert "may be used by others" in refused.err


def shown(server: Server) -> str:
    """The certificate that a new connection is shown."""
    parts = urlsplit(server.url)
    assert parts.hostname is not None and parts.port is not None
    return ssl.get_server_certificate((parts.hostname, parts.port))


def test_certificates_are_read_again_on_sighup(tmp_path: Path) -> None:
    """SRV-028: without a restart; files that cannot be used change nothing."""
    folders = [tmp_path / "old", tmp_path / "new"]
    for folder in folders:
        folder.mkdir()
        OwnCertificate(folder, ["127.0.0.1"])
    old, new = ([folder / name for name in SERVER_FILES] for folder in folders)
    server = Server.start(tmp_path, "--tls", ",".join(map(str, old)))
    try:
        assert shown(server).strip() == old[0].read_text().strip()
        for there, here in zip(new, old, strict=True):
            here.write_bytes(there.read_bytes())
        server.process.send(signal.SIGHUP)
        server.process.hear("the certificate was read again")
        assert shown(server).strip() == new[0].read_text().strip()
        old[1].write_text("nonsense")
        server.process.send(signal.SIGHUP)
        server.process.hear("the certificate stays as it is")
        assert shown(server).strip() == new[0].read_text().strip()
        server.stop()
    finally:
        server.commands.end_all()


def test_an_own_certificate_that_ends_soon_is_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from datetime import timedelta

    from perdure.server import tls

    with monkeypatch.context() as short:
        short.setattr(tls, "CERTIFICATE_LASTS", timedelta(days=20))
        own = OwnCertificate(tmp_path, ["127.0.0.1"])
    first = (tmp_path / "server.pem").read_bytes()
    own.read()
    second = (tmp_path / "server.pem").read_bytes()
    assert second != first
    own.read()
    assert (tmp_path / "server.pem").read_bytes() == second


def test_a_server_that_stops_says_so_before_it_hangs_up(tmp_path: Path) -> None:
    """SRV-001: `/readyz` is 503 at once; for the drain delay requests are still answered."""
    settings = tmp_path / "settings.toml"
    settings.write_text("[server]\ndrain_delay = 1_000\n")
    server = Server.start(tmp_path, "--config", str(settings))
    try:
        assert server.nobody("GET", "/readyz").status == 200
        server.process.send(signal.SIGTERM)
        while server.nobody("GET", "/readyz").status != 503:
            pass
        assert server.admin.result(server.admin.start(RETURNS))["value"] == 17
        server.process.send(signal.SIGTERM)  # a second one does not wait
        assert server.process.end().code == -signal.SIGTERM
    finally:
        server.commands.end_all()
