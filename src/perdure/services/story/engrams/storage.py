"""Files that Engrams share by reference (STY-007, STY-219, STY-221), in the folder `PERDURE_STORAGE_DIR`.

    PATH/NAMESPACE/FAMILY/STEPRUN/KEY.json    {"contentType": "json" or "raw", "data": …}

PATH is `storage.file.path` of the step, its Story or its Engram. FAMILY is the root run: a reference only leads to
values of its own family, whoever passes it on (STY-283). A key belongs to its StepRun: a repeated attempt writes
the same file again. With `storage.s3` they are objects of a bucket: `s3://BUCKET/NAMESPACE/FAMILY/STEPRUN/KEY.json`.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perdure.expressions import json_decoding
from perdure.expressions.subpaths import PathNotFound, follow
from perdure.kernel.file_modes import SETTING, folder_mode, private_mode
from perdure.kernel.json_values import jsontext
from perdure.providers import object_storage
from perdure.providers.object_storage import SCHEME, ObjectStorageFailed
from perdure.providers.text import is_file_name
from perdure.services.story.engrams.failure import EngramError

BUCKETS = "PERDURE_STORAGE_S3"
FOLDER = "PERDURE_STORAGE_DIR"
REFERENCE = "$bubuStorageRef"
SUBPATH = "$bubuStoragePath"
CONTENT_TYPE = "$bubuStorageContentType"


def put(
    settings: Mapping[str, Any], namespace: str, family: str, step_run: str, key: str, value: Any
) -> dict[str, str]:
    """Store a value and return the reference to it."""
    path = str((settings.get("file") or {}).get("path") or "")
    inside = "/".join((namespace, family, step_run, f"{key}.json"))
    kind = "raw" if isinstance(value, str) else "json"
    text = jsontext.encode({"contentType": kind, "data": value})
    if (bucket := settings.get("s3")) is not None:
        with _objects():
            reference = object_storage.reference_to(BUCKETS, bucket, inside)
            _check_names(inside)
            object_storage.write_object(BUCKETS, reference, text)
    else:
        reference = "/".join([*filter(None, path.split("/")), inside])
        _write(reference, text)
    return {REFERENCE: reference, CONTENT_TYPE: kind}


def _write(reference: str, text: bytes) -> None:
    place = _place(reference)
    try:
        mode = private_mode(os.environ.get(SETTING, ""))
        make_folders(place.parent, folder_mode(mode))
        draft = place.with_name(f".{place.name}.{os.getpid()}")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(place)
    except OSError as error:
        raise storage_problem(f"{reference!r} cannot be written: {error.strerror}", retryable=True) from None


def get(reference: Mapping[str, Any], families: frozenset[str]) -> Any:
    """The value of a reference, for a run of these families."""
    name = str(reference.get(REFERENCE))
    if not families.intersection(name.split("/")[-3:-2]):
        raise storage_problem(f"the storage reference {name!r} leads to values of other runs")
    try:
        stored = json_decoding.decode(_read(name), jsontext.read_strict, lambda _: None, unique=True)
        return follow(stored["data"], str(reference.get(SUBPATH) or ""))
    except OSError as error:
        raise storage_problem(f"the storage reference {name!r} cannot be read: {error.strerror}") from None
    except (jsontext.NotJson, json_decoding.MalformedJson, UnicodeDecodeError, KeyError, TypeError):
        raise storage_problem(f"the storage reference {name!r} leads to a file with an unknown format") from None
    except PathNotFound as missing:
        raise storage_problem(f"the storage reference {name!r}: {missing}") from None


def _read(name: str) -> str:
    if name.startswith(SCHEME):
        _check_names(name.removeprefix(SCHEME))
        with _objects():
            return object_storage.read_object(BUCKETS, name).decode()
    return _place(name).read_text("utf-8")


@contextmanager
def _objects() -> Iterator[None]:
    try:
        yield
    except ObjectStorageFailed as failure:
        raise storage_problem(str(failure), retryable=failure.is_passing) from None


def storage_problem(message: str, *, retryable: bool = False) -> EngramError:
    return EngramError(message, type="storage_error", exit_class="retry" if retryable else "terminal")


def _check_names(reference: str) -> None:
    if not all(map(is_file_name, reference.split("/"))):
        raise storage_problem(f"the storage reference {reference!r} leads out of the storage")


def make_folders(folder: Path, mode: int) -> None:
    """The folder and those above it that are missing, all of them with this mode."""
    missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    for parent in reversed(missing):
        parent.mkdir(mode, exist_ok=True)


def _place(reference: str) -> Path:
    folder = os.environ.get(FOLDER)
    if not folder:
        raise storage_problem(
            f"there is no storage for {reference!r}: {FOLDER} is not set; it must name a folder that all workers share"
        )
    parts = reference.split("/")
    root = Path(folder).resolve()
    place = root.joinpath(*parts)
    if not all(map(is_file_name, parts)) or root not in place.resolve().parents:
        raise storage_problem(f"the storage reference {reference!r} leads out of the storage folder")
    return place
