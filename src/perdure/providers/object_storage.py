"""Objects of an S3 service: Amazon's, MinIO, Ceph …

The operator says which buckets there are, in a variable of the process (`https://HOST/BUCKET`, several separated by
spaces): one for values that Engrams share, another for scripts, so that no script reads the values of a run. The usual
variables `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN` and `AWS_REGION` have the keys. A document
chooses among these buckets: no document sends the operator's signature anywhere else. Requests are signed as AWS
Signature Version 4 says; objects are addressed by path.

Blocking: call it from a separate thread or process.
"""

import hashlib
import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit

SCHEME = "s3://"
REGION = "us-east-1"
ALGORITHM = "AWS4-HMAC-SHA256"
REQUEST_TIMEOUT = 30.0  # seconds for one request
LARGEST = 256 << 20  # bytes of an object that is read


class ObjectStorageFailed(Exception):
    """An object cannot be read or written. `status`: what the service has answered, if it has."""

    def __init__(self, message: str, *, is_passing: bool = False, status: int | None = None) -> None:
        super().__init__(message)
        self.is_passing = is_passing
        self.status = status


@dataclass(frozen=True)
class AccessKeys:
    """Whose signature requests have."""

    access_key: str
    secret_key: str
    token: str = ""
    region: str = ""


@dataclass(frozen=True)
class Bucket:
    name: str
    url: str  # with the bucket, without a slash at the end


def reference_to(buckets: str, settings: Mapping[str, object], key: str) -> str:
    """How an object is referred to. `buckets`: the variable that names them; `settings`: bucket and endpoint."""
    name = str(settings.get("bucket") or "")
    bucket = _find(buckets, name)
    endpoint = str(settings.get("endpoint") or "").rstrip("/")
    if endpoint and not bucket.url.startswith(f"{endpoint}/"):
        raise ObjectStorageFailed(f"the endpoint {endpoint!r} is not that of the bucket {name!r} in {buckets}")
    return f"{SCHEME}{name}/{key}"


def only_bucket(buckets: str) -> str:
    """The name of the bucket, where the operator names one and a document none."""
    known = [_bucket(buckets, url).name for url in os.environ.get(buckets, "").split()]
    if len(known) > 1:
        raise ObjectStorageFailed(f"{buckets} names several buckets ({', '.join(known)}): choose one of them")
    return known[0] if known else ""


def write_object(buckets: str, reference: str, text: bytes) -> None:
    status, answer = _request(buckets, "PUT", reference, text)
    if status != 200:
        raise _refused(f"the object {reference!r} cannot be written", status, answer)


def read_object(buckets: str, reference: str, keys: AccessKeys | None = None, most: int = LARGEST) -> bytes:
    """`keys` are those of the process by default."""
    status, answer = _request(buckets, "GET", reference, b"", keys, most)
    if status != 200:
        raise _refused(f"the object {reference!r} cannot be read", status, answer)
    return answer


def _find(buckets: str, name: str) -> Bucket:
    known = [_bucket(buckets, url) for url in os.environ.get(buckets, "").split()]
    bucket = next((bucket for bucket in known if bucket.name == name), None)
    if bucket is None:
        names = ", ".join(bucket.name for bucket in known) or "none: the variable is not set"
        raise ObjectStorageFailed(f"there is no bucket {name!r} for this worker ({buckets} names {names})")
    return bucket


def _bucket(buckets: str, url: str) -> Bucket:
    parts = urlsplit(url)
    name = parts.path.strip("/")
    is_plain = parts.scheme in ("http", "https") and parts.hostname and parts.username is None
    if not is_plain or not name or "/" in name:  # it may contain keys: it is not shown
        message = f"{buckets} contains an entry that is not the address of a bucket (expected e.g. https://HOST/BUCKET)"
        raise ObjectStorageFailed(message)
    return Bucket(name, url.rstrip("/"))


def _request(
    buckets: str, method: str, reference: str, body: bytes, keys: AccessKeys | None = None, most: int = LARGEST
) -> tuple[int, bytes]:
    import httpx

    name, _, key = reference.removeprefix(SCHEME).partition("/")
    bucket = _find(buckets, name)
    if not key or not {".", ".."}.isdisjoint(key.split("/")):  # it would lead out of the bucket, or list what is in it
        raise ObjectStorageFailed(f"{reference!r} does not name an object of the bucket {name!r}")
    url = f"{bucket.url}/{quote(key, safe='/-._~')}"
    headers = _signed(method, url, body, datetime.now(UTC), keys or _keys_of_process())
    headers["accept-encoding"] = "identity"
    try:
        with (
            httpx.Client(timeout=REQUEST_TIMEOUT, trust_env=False) as client,
            client.stream(method, url, content=body or None, headers=headers) as answer,
        ):
            if answer.status_code == 200 and answer.headers.get("content-encoding", "identity") != "identity":
                raise ObjectStorageFailed(f"the object {reference!r} is compressed by its storage", status=415)
            pieces, size = [], 0
            for piece in answer.iter_raw():
                pieces.append(piece)
                size += len(piece)
                if size > most:
                    raise ObjectStorageFailed(f"the object {reference!r} has more than {most} bytes", status=413)
            return answer.status_code, b"".join(pieces)
    except httpx.HTTPError as error:
        message = f"the storage of {reference!r} does not answer: {type(error).__name__}"
        raise ObjectStorageFailed(message, is_passing=True) from None


def _keys_of_process() -> AccessKeys:
    access_key, secret_key = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    if not access_key or not secret_key:
        raise ObjectStorageFailed("S3 needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of the worker's process")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or REGION
    return AccessKeys(access_key, secret_key, os.environ.get("AWS_SESSION_TOKEN", ""), region)


def _signed(method: str, url: str, body: bytes, now: datetime, keys: AccessKeys) -> dict[str, str]:
    """The headers of a request, with its signature."""
    parts = urlsplit(url)
    moment, digest = now.strftime("%Y%m%dT%H%M%SZ"), hashlib.sha256(body).hexdigest()
    headers = {"host": parts.netloc, "x-amz-content-sha256": digest, "x-amz-date": moment}
    if keys.token:
        headers["x-amz-security-token"] = keys.token
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    request = "\n".join((method, parts.path, "", lines, names, digest))
    scope = f"{moment[:8]}/{keys.region or REGION}/s3/aws4_request"
    text = "\n".join((ALGORITHM, moment, scope, hashlib.sha256(request.encode()).hexdigest()))
    key = f"AWS4{keys.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    headers["authorization"] = (
        f"{ALGORITHM} Credential={keys.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return headers


def _refused(message: str, status: int, answer: bytes) -> ObjectStorageFailed:
    code = answer.partition(b"<Code>")[2].partition(b"</Code>")[0].decode("ascii", "replace")[:60]
    complete = f"{message}: {status}{f' ({code})' if code else ''}"
    return ObjectStorageFailed(complete, is_passing=status >= 500 or status == 429, status=status)
