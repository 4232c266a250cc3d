"""Transports, their bindings and ReferenceGrants (STY-046, section 1.9)."""

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

_MIME = re.compile(r"[A-Za-z0-9][\w!#$&^.+-]*/[A-Za-z0-9*][\w!#$&^.+*-]*")
_CAPABILITIES = ("supportedAudio", "supportedVideo", "supportedBinary")

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
    """STY-046"""
    cursor = case.spec
    driver = cursor.at("driver").value
    if driver is None or (isinstance(driver, str) and not driver.strip()):
        cursor.problem(INVALID, "spec.driver is required")
    if not any(cursor.at(word).value for word in _CAPABILITIES):
        cursor.problem(INVALID, f"a transport needs at least one capability: {', '.join(_CAPABILITIES)}")
    for word in ("supportedAudio", "supportedVideo"):
        _unique([one.at("name") for one in cursor.at(word).items()], "codec")
    _unique(list(cursor.at("supportedBinary").items()), "MIME type")
    for one in cursor.at("supportedBinary").items():
        if isinstance(one.value, str) and one.value.strip() and not _MIME.fullmatch(one.value.strip()):
            one.problem(INVALID, f"{shown(one.value)} is no MIME type such as type/subtype")
    settings = cursor.at("streaming")
    if isinstance(settings.value, dict):
        streaming.check(settings, None)


def _unique(looks: list[Cursor], what: str) -> None:
    seen: set[str] = set()
    for one in looks:
        if one.value is None or (isinstance(one.value, str) and not one.value.strip()):
            one.problem(INVALID, f"a {what} must have a name")
            continue
        if not isinstance(one.value, str):
            continue
        word = one.value.strip().lower()
        if word in seen:
            one.problem(INVALID, f"duplicate {what} {shown(one.value)}")
        seen.add(word)
