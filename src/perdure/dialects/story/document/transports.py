"""Transports, their bindings, and ReferenceGrants (STY-046, section 1.9)."""

import re

from perdure.dialects.story.document import streaming
from perdure.dialects.story.document.context import ResourceCase
from perdure.dialects.story.document.cursor import INVALID, Cursor
from perdure.dialects.story.document.shapes import (
    FieldsShape,
    IntegerShape,
    JsonSchemaShape,
    KubernetesShape,
    ListShape,
    NameShape,
    ObjectShape,
    ReferenceShape,
    TextShape,
    shown,
)
from perdure.dialects.story.plan import stream_settings
from perdure.kernel.documents.problems import guess

_MIME = re.compile(r"[A-Za-z0-9][\w!#$&^.+-]*/[A-Za-z0-9*][\w!#$&^.+*-]*")
_CAPABILITIES = ("supportedAudio", "supportedVideo", "supportedBinary")

AUDIO_CODECS = ("pcm16", "pcm24", "opus", "g711-mu", "g711-a", "g722", "aac", "mp3", "flac", "raw")
VIDEO_CODECS = ("h264", "vp8", "vp9", "av1", "raw-yuv420", "raw-rgb", "raw-bgr")
_CODECS = {"supportedAudio": AUDIO_CODECS, "supportedVideo": VIDEO_CODECS}

TRANSPORT = FieldsShape(
    {
        "provider": TextShape(),
        "driver": TextShape(),
        "connectorImage": KubernetesShape(TextShape()),
        "supportedAudio": ListShape(
            FieldsShape({"name": TextShape(), "sampleRateHz": IntegerShape(0), "channels": IntegerShape(0)})
        ),
        "supportedVideo": ListShape(FieldsShape({"name": TextShape(), "profile": TextShape()})),
        "supportedBinary": ListShape(TextShape()),
        "streaming": streaming.SETTINGS,
        "configSchema": JsonSchemaShape("config"),
        "defaultSettings": ObjectShape(),
    }
)

BINDING = FieldsShape(
    {
        "transportRef": TextShape(least=1),
        "storyRunRef": ReferenceShape(),
        "stepName": TextShape(least=1),
        "engramName": TextShape(least=1),
        "driver": TextShape(least=1),
        "audio": ObjectShape(),
        "video": ObjectShape(),
        "binary": ObjectShape(),
        "connectorEndpoint": TextShape(),
        "rawSettings": ObjectShape(),
    },
    required=("transportRef", "stepName", "engramName", "driver"),
)

_GROUP, _KIND = TextShape(most=253), TextShape(least=1, most=63)
GRANT = FieldsShape(
    {
        "from": ListShape(
            FieldsShape({"group": _GROUP, "kind": _KIND, "namespace": NameShape()}, ("group", "kind", "namespace")), 1
        ),
        "to": ListShape(FieldsShape({"group": _GROUP, "kind": _KIND, "name": NameShape(253)}, ("group", "kind")), 1),
    },
    required=("from", "to"),
)


def validate_transport(case: ResourceCase) -> None:
    """Validate a Transport (STY-046)."""
    cursor = case.spec
    driver = cursor.at("driver").value
    if driver is None or (isinstance(driver, str) and not driver.strip()):
        cursor.problem(INVALID, "spec.driver is required")
    if not any(cursor.at(field).value for field in _CAPABILITIES):
        cursor.problem(INVALID, f"a transport needs at least one capability: {', '.join(_CAPABILITIES)}")
    for field, codecs in _CODECS.items():
        names = [format.at("name") for format in cursor.at(field).items()]
        _unique(names, "codec")
        for name in names:
            _known_codec(name, codecs)
    _unique(list(cursor.at("supportedBinary").items()), "MIME type")
    for format in cursor.at("supportedBinary").items():
        if isinstance(format.value, str) and format.value.strip() and not _MIME.fullmatch(format.value.strip()):
            format.problem(INVALID, f"{shown(format.value)} is not a MIME type (expected type/subtype)")
    if driver == stream_settings.NATS:
        nats = cursor.at("defaultSettings", "nats")
        if problem := stream_settings.nats_problem(nats.value):
            (nats if nats.value is not None else cursor).problem(INVALID, problem)
    settings = cursor.at("streaming")
    if isinstance(settings.value, dict):
        streaming.check(settings, None)


def _known_codec(cursor: Cursor, codecs: tuple[str, ...]) -> None:
    """Codec names are closed lists (STR-005)."""
    name = cursor.value
    if isinstance(name, str) and name.strip() and name not in codecs:
        cursor.problem(INVALID, f"unsupported codec {shown(name)}{guess(name, codecs)} (expected {', '.join(codecs)})")


def _unique(cursors: list[Cursor], item_kind: str) -> None:
    seen: set[str] = set()
    for cursor in cursors:
        if cursor.value is None or (isinstance(cursor.value, str) and not cursor.value.strip()):
            cursor.problem(INVALID, f"a {item_kind} must have a name")
            continue
        if not isinstance(cursor.value, str):
            continue
        name = cursor.value.strip().lower()
        if name in seen:
            cursor.problem(INVALID, f"duplicate {item_kind} {shown(cursor.value)}")
        seen.add(name)
