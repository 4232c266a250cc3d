"""TLS: certificates from files, or from an authority of the server's own in its data folder (`--tls auto`)."""

import socket
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from perdure.engine.private_files import write_private
from perdure.kernel.errors import PerdureError

CA_LASTS = timedelta(days=3_650)
CERTIFICATE_LASTS = timedelta(days=90)
CA_FILES = ("ca.pem", "ca.key")
SERVER_FILES = ("server.pem", "server.key")


class TlsUnusable(PerdureError):
    """The certificate or the key for TLS cannot be used."""

    code = "TLS-UNUSABLE"
    hint = "Use --tls auto, or --tls CERT,KEY with two PEM files that belong together."


class ServerCertificate:
    """The certificate that connections are shown. It can be read again: new connections see the new one."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = certificate, key
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.read()

    def read(self) -> None:
        """Files that cannot be used change nothing."""
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*self._files)
            self.context.load_cert_chain(*self._files)
        except (OSError, ssl.SSLError) as error:
            certificate, key = self._files
            raise TlsUnusable(f"{certificate}, {key}: {error.strerror or error}") from None


class OwnCertificate(ServerCertificate):
    """A certificate of our own authority, made if there is none or if it ends soon."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        _need_library()
        self._folder, self._names = folder, names
        ensure_authority(folder, names)
        super().__init__(*(folder / name for name in SERVER_FILES))

    def read(self) -> None:
        _ensure_certificate(self._folder, self._names)
        super().read()


def own_names(host: str, more: Sequence[str]) -> list[str]:
    return list(dict.fromkeys([host.strip("[]"), "localhost", "127.0.0.1", "::1", socket.gethostname(), *more]))


def _need_library() -> None:
    try:
        import cryptography  # noqa: F401  (asked for here, so that its absence is explained)
    except ImportError:
        raise TlsUnusable(
            "--tls auto needs the package cryptography", hint="pip install 'perdure[tls]', or use --tls CERT,KEY."
        ) from None


def ensure_authority(folder: Path, names: Sequence[str]) -> Path:
    """The file with the authority's certificate; made once, limited to the names of this server."""
    certificate, key = (folder / name for name in CA_FILES)
    if certificate.exists() and key.exists():
        return certificate
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    private = _new_key()
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"Perdure {socket.gethostname()}"[:64])])
    constraints = x509.NameConstraints([_constraint(name) for name in names], None)
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(subject, subject, private.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + CA_LASTS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(constraints, critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(private.public_key()), critical=False)
        .sign(private, hashes.SHA256())
    )
    _write(key, certificate, private, made)
    return certificate


def _ensure_certificate(folder: Path, names: Sequence[str]) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.x509.oid import ExtendedKeyUsageOID

    certificate, key = (folder / name for name in SERVER_FILES)
    if (
        certificate.exists()
        and key.exists()
        and _is_good(x509.load_pem_x509_certificate(certificate.read_bytes()), names)
    ):
        return
    authority = x509.load_pem_x509_certificate((folder / CA_FILES[0]).read_bytes())
    signer: Any = serialization.load_pem_private_key((folder / CA_FILES[1]).read_bytes(), None)
    private = _new_key()
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, names[0][:64])])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(authority.subject, subject, private.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + CERTIFICATE_LASTS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(private.public_key()), critical=False)
        .add_extension(_usage(signs=False), critical=True)
        .sign(signer, hashes.SHA256())
    )
    _write(key, certificate, private, made)


def _is_good(certificate: Any, names: Sequence[str]) -> bool:
    """It has all names, and a third of its time is left."""
    from cryptography import x509

    alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    has_names = {_alternative(name) for name in names} <= set(alternatives)
    return has_names and certificate.not_valid_after_utc - datetime.now(UTC) > CERTIFICATE_LASTS / 3


def _new_key() -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _usage(*, signs: bool) -> Any:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(name: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _constraint(name: str) -> Any:
    """As `_alternative`, as the name constraints of an authority have it: an address is a network of one."""
    from ipaddress import ip_network

    from cryptography import x509

    try:
        return x509.IPAddress(ip_network(name))
    except ValueError:
        return x509.DNSName(name)


def _write(key: Path, certificate: Path, private: Any, made: Any) -> None:
    from cryptography.hazmat.primitives import serialization

    pem = serialization.Encoding.PEM
    secret = private.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    write_private(key, secret)
    write_private(certificate, made.public_bytes(pem))
    certificate.chmod(0o644)
