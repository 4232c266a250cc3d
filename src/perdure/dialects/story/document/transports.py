"""Transports, their bindings and ReferenceGrants (STY-046, section 1.9)."""

import re

from perdure.dialects.story.document import streaming
from perdure.dialects.story.document.context import Case
from perdure.dialects.story.document.cursor import INVALID, Cursor
from perdure.dialects.story.document.shapes import (
    Fields,
    JsonSchema,
    Kubernetes,
    ListOf,
    Name,
    Object,
    ReferenceShape,
    Text,
    Whole,
    shown,
)

_MIME = re.compile(r"[A-Za-z0-9][\w!#$&^.+-]*/[A-Za-z0-9*][\w!#$&^.+*-]*")
_CAPABILITIES = ("supportedAudio", "supportedVideo", "supportedBinary")

TRANSPORT = Fields(
    {
        "provider": Text(),
        "driver": Text(),
        "connectorImage": Kubernetes(Text()),
        "supportedAudio": ListOf(Fields({"name": Text(), "sampleRateHz": Whole(0), "channels": Whole(0)})),
        "supportedVideo": ListOf(Fields({"name": Text(), "profile": Text()})),
        "supportedBinary": ListOf(Text()),
        "streaming": streaming.SETTINGS,
        "configSchema": JsonSchema("config"),
        "defaultSettings": Object(),
    }
)

BINDING = Fields(
    {
        "transportRef": Text(least=1),
        "storyRunRef": ReferenceShape(),
        "stepName": Text(least=1),
        "engramName": Text(least=1),
        "driver": Text(least=1),
        "audio": Object(),
        "video": Object(),
        "binary": Object(),
        "connectorEndpoint": Text(),
        "rawSettings": Object(),
    },
    required=("transportRef", "stepName", "engramName", "driver"),
)

_GROUP, _KIND = Text(most=253), Text(least=1, most=63)
GRANT = Fields(
    {
        "from": ListOf(
            Fields({"group": _GROUP, "kind": _KIND, "namespace": Name()}, ("group", "kind", "namespace")), 1
        ),
        "to": ListOf(Fields({"group": _GROUP, "kind": _KIND, "name": Name(253)}, ("group", "kind")), 1),
    },
    required=("from", "to"),
)


def validate_transport(case: Case) -> None:
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
