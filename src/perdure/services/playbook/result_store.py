"""`playbook.result_store`: bodies of results as objects of an S3 service (PBK-171).

    s3://BUCKET/NAMESPACE/EXECUTION/step/STEP/task/LABEL/run/RUN/attempt/N.json

The operator names the buckets in `PERDURE_RESULTS_S3`; a document chooses among them. A run reads objects of its own
namespace only. An object is the body's JSON text, byte by byte what the digest in the reference was made of.
"""

import hashlib
import time
from collections.abc import Callable
from typing import Any

from perdure.kernel.json_values import jsontext
from perdure.providers import object_storage
from perdure.providers.failure import ProviderFailure
from perdure.providers.object_storage import SCHEME, ObjectStorageFailed
from perdure.providers.registry import Provider
from perdure.providers.text import is_file_name

BUCKETS = "PERDURE_RESULTS_S3"
TRIES = 4  # of one request, before the attempt of the task fails: its tool would have to run again
FIRST_PAUSE = 0.25  # seconds; doubled after each try


def transfer(
    action: str, namespace: str, sha256: str, input: Any, bucket: str = "", key: str = "", object: str = ""
) -> Any:
    """`put` the input under a key and return where it is, or `get` an object."""
    if action == "put":
        return {"object": _put(bucket, f"{namespace}/{key}", jsontext.encode(input), sha256)}
    return _get(object, namespace, sha256)


def _put(bucket: str, key: str, text: bytes, expected: str) -> str:
    if hashlib.sha256(text).hexdigest() != expected:
        raise ProviderFailure("storage_access", f"the body of {key!r} has another digest than its result", False)
    _check_names(key)
    try:
        reference = object_storage.reference_to(BUCKETS, {"bucket": bucket or object_storage.only_bucket(BUCKETS)}, key)
    except ObjectStorageFailed as failure:
        raise ProviderFailure("storage_access", str(failure), retryable=False) from None
    _persist(lambda: object_storage.write_object(BUCKETS, reference, text))
    return reference


def _get(reference: str, namespace: str, expected: str) -> Any:
    inside = reference.removeprefix(SCHEME).partition("/")[2]
    _check_names(inside)
    if inside.partition("/")[0] != namespace:
        message = f"the object {reference!r} does not belong to the namespace {namespace!r} of this run"
        raise ProviderFailure("storage_access", message, retryable=False)
    text = _persist(lambda: object_storage.read_object(BUCKETS, reference))
    if hashlib.sha256(text).hexdigest() != expected:
        message = f"the object {reference!r} is not what was stored: its digest differs"
        raise ProviderFailure("storage_access", message, retryable=False)
    return jsontext.decode(text)


def _check_names(key: str) -> None:
    if not all(map(is_file_name, key.split("/"))):
        raise ProviderFailure("storage_access", f"{key!r} cannot be the name of an object", retryable=False)


def _persist(request: Callable[[], Any]) -> Any:
    for count in range(TRIES):
        try:
            return request()
        except ObjectStorageFailed as failure:
            if failure.status == 404:
                raise ProviderFailure("missing_reference", str(failure), retryable=True) from None
            if not failure.is_passing or count + 1 == TRIES:
                raise ProviderFailure("storage_access", str(failure), retryable=failure.is_passing) from None
        time.sleep(FIRST_PAUSE * 2**count)
    raise AssertionError("the last try has returned or raised")


PROVIDER = Provider.of("playbook.result_store", transfer)
