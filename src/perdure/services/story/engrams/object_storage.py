"""Values that Engrams share, as objects of an S3 service (STY-007): Amazon's, MinIO, Ceph …

The operator says which buckets there are, in `PERDURE_STORAGE_S3` (`https://HOST/BUCKET`, several separated by spaces),
and gives the usual variables `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN` and `AWS_REGION` of the
process. A document chooses among these buckets: no document sends the operator's signature anywhere else. Requests are
signed as AWS Signature Version 4 says; objects are addressed by path.
"""

import hashlib
import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit

from perdure.services.story.engrams.failure import EngramError

BUCKETS = "PERDURE_STORAGE_S3"
SCHEME = "s3://"
REGION = "us-east-1"
ALGORITHM = "AWS4-HMAC-SHA256"
PATIENCE = 30.0  # seconds for one request
LARGEST = 256 << 20  # bytes of an object that is read


@dataclass(frozen=True)
class Bucket:
    name: str
    url: str  # with the bucket, without a slash at the end


def reference_to(settings: Mapping[str, object], key: str) -> str:
    """How an object is referred to. `settings`: `storage.s3` of the step, its Story or its Engram."""
    name = str(settings.get("bucket") or "")
    bucket = _find(name)
    endpoint = str(settings.get("endpoint") or "").rstrip("/")
    if endpoint and not bucket.url.startswith(f"{endpoint}/"):
        raise storage_problem(f"storage.s3.endpoint {endpoint!r} is not that of the bucket {name!r} in {BUCKETS}")
    return f"{SCHEME}{name}/{key}"


def write_object(reference: str, text: bytes) -> None:
    status, answer = _request("PUT", reference, text)
    if status != 200:
        raise _refused(f"the object {reference!r} cannot be written", status, answer)


def read_object(reference: str) -> bytes:
    status, answer = _request("GET", reference, b"")
    if status != 200:
        raise _refused(f"the storage reference {reference!r} cannot be read", status, answer)
    return answer


def _find(name: str) -> Bucket:
    buckets = [_bucket(url) for url in os.environ.get(BUCKETS, "").split()]
    bucket = next((bucket for bucket in buckets if bucket.name == name), None)
    if bucket is None:
        known = ", ".join(bucket.name for bucket in buckets) or "none: the variable is not set"
        raise storage_problem(f"there is no bucket {name!r} for this worker ({BUCKETS} names {known})")
    return bucket


def _bucket(url: str) -> Bucket:
    parts = urlsplit(url)
    name = parts.path.strip("/")
    if parts.scheme not in ("http", "https") or not parts.hostname or not name or "/" in name:
        raise storage_problem(f"{BUCKETS}: {url!r} is not the address of a bucket (expected e.g. https://HOST/BUCKET)")
    return Bucket(name, url.rstrip("/"))


def _request(method: str, reference: str, body: bytes) -> tuple[int, bytes]:
    import httpx

    name, _, key = reference.removeprefix(SCHEME).partition("/")
    url = f"{_find(name).url}/{quote(key, safe='/-._~')}"
    headers = _signed(method, url, body, datetime.now(UTC))
    try:
        with (
            httpx.Client(timeout=PATIENCE, trust_env=False) as client,
            client.stream(method, url, content=body or None, headers=headers) as answer,
        ):
            pieces, size = [], 0
            for piece in answer.iter_bytes():
                pieces.append(piece)
                size += len(piece)
                if size > LARGEST:
                    raise storage_problem(f"the storage reference {reference!r} leads to more than {LARGEST} bytes")
            return answer.status_code, b"".join(pieces)
    except httpx.HTTPError as error:
        message = f"the storage of {reference!r} does not answer: {type(error).__name__}"
        raise storage_problem(message, retryable=True) from None


def _signed(method: str, url: str, body: bytes, now: datetime) -> dict[str, str]:
    """The headers of a request, with its signature."""
    access_key, secret_key = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    if not access_key or not secret_key:
        raise storage_problem("storage.s3 needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of the worker's process")
    parts = urlsplit(url)
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or REGION
    moment, digest = now.strftime("%Y%m%dT%H%M%SZ"), hashlib.sha256(body).hexdigest()
    headers = {"host": parts.netloc, "x-amz-content-sha256": digest, "x-amz-date": moment}
    if token := os.environ.get("AWS_SESSION_TOKEN"):
        headers["x-amz-security-token"] = token
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    request = "\n".join((method, parts.path, "", lines, names, digest))
    scope = f"{moment[:8]}/{region}/s3/aws4_request"
    text = "\n".join((ALGORITHM, moment, scope, hashlib.sha256(request.encode()).hexdigest()))
    key = f"AWS4{secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    headers["authorization"] = (
        f"{ALGORITHM} Credential={access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return headers


def _refused(message: str, status: int, answer: bytes) -> EngramError:
    code = answer.partition(b"<Code>")[2].partition(b"</Code>")[0].decode("ascii", "replace")[:60]
    complete = f"{message}: {status}{f' ({code})' if code else ''}"
    return storage_problem(complete, retryable=status >= 500 or status == 429)


def storage_problem(message: str, *, retryable: bool = False) -> EngramError:
    return EngramError(message, type="storage_error", exit_class="retry" if retryable else "terminal")
