"""Policies, as the tables of sections 1.4 to 1.6 have them: the same blocks stand in Stories, steps and Engrams."""

from typing import Any

import msgspec

from perdure.dialects.story.document.cursor import INVALID, Cursor
from perdure.dialects.story.document.shapes import (
    Either,
    Fields,
    Flag,
    Kubernetes,
    ListOf,
    MapOf,
    Name,
    Object,
    OneOf,
    Shape,
    Span,
    Text,
    Whole,
)

MODES = ("job", "deployment", "statefulset")
IN_DOUBT = ("repeat", "hold")  # what becomes of an effect of which nobody knows whether it happened
BACKOFFS = ("exponential", "linear", "constant")

RETRY = Fields(
    {
        "maxRetries": Whole(0, 10),
        "delay": Span(),
        "maxDelay": Span(),
        "jitter": Whole(0, 100),
        "backoff": OneOf(BACKOFFS),
    }
)

CACHE = Fields(
    {
        "enabled": Flag(),
        "key": Text(),
        "salt": Text(),
        "mode": OneOf(("read", "write", "readWrite")),
        "ttlSeconds": Whole(),
    }
)

_STORAGE = Fields(
    {
        "s3": Fields(
            {
                "bucket": Text(least=1),
                "region": Text(),
                "endpoint": Text(),
                "authentication": Object(),
                "usePathStyle": Flag(),
            },
            required=("bucket",),
        ),
        "file": Fields({"path": Text(), "volumeClaimName": Kubernetes(Text()), "emptyDir": Kubernetes()}),
        "timeoutSeconds": Whole(0),
    }
)


class Storage(msgspec.Struct, frozen=True):
    """Where large values go. S3 only where there is a driver for it (STY-007)."""

    def validate(self, cursor: Cursor) -> None:
        _STORAGE.validate(cursor)
        if not isinstance(cursor.value, dict):
            return
        if cursor.value.get("s3") is not None and "s3" not in cursor.report.settings.storage_drivers:
            cursor.at("s3").problem(
                INVALID, "storage.s3 needs an S3 driver, and none is configured", hint="Use storage.file."
            )
        path = cursor.at("file", "path")
        if isinstance(path.value, str) and ".." in path.value.split("/"):
            path.problem(INVALID, "storage.file.path must not lead out of the data root")

    def tidy(self, value: Any) -> Any:
        return _STORAGE.tidy(value)


_DEBUG = Either(Flag(), Text(), "true, false or a log level")

_EXECUTION: dict[str, Shape] = {
    "timeout": Span(),
    "retry": RETRY,
    "cache": CACHE,
    "maxInlineSize": Whole(0),
    "debug": _DEBUG,
    "job": Fields(
        {
            "ttlSecondsAfterFinished": Whole(),
            "storyRunRetentionSeconds": Whole(),
            "backoffLimit": Kubernetes(Whole(0)),
            "restartPolicy": Kubernetes(Text()),
        }
    ),
    "realtime": Fields({"ttlSecondsAfterFinished": Whole()}),
    "storage": Storage(),
    "effectsInDoubt": OneOf(IN_DOUBT),
    "resources": Kubernetes(),
    "security": Kubernetes(),
    "placement": Kubernetes(),
    "imagePullPolicy": Kubernetes(Text()),
    "serviceAccountName": Kubernetes(Name(253)),
    "automountServiceAccountToken": Kubernetes(Flag()),
    "probes": Kubernetes(),
    "rbac": Kubernetes(),
}

OVERRIDES = Fields(_EXECUTION)
POLICY = Fields({**_EXECUTION, "maxRecursionDepth": Whole(1)})

STEP_RUN_OVERRIDES = Fields(
    {
        **_EXECUTION,
        "cpuRequest": Kubernetes(Text()),
        "cpuLimit": Kubernetes(Text()),
        "memoryRequest": Kubernetes(Text()),
        "memoryLimit": Kubernetes(Text()),
        "backoffLimit": Kubernetes(Whole(0)),
        "restartPolicy": Kubernetes(Text()),
        "ttlSecondsAfterFinished": Whole(),
    }
)

TEMPLATE_EXECUTION = Fields(
    {
        "timeout": Span(),
        "retry": Fields(
            {
                "recommendedMaxRetries": Whole(0),
                "recommendedBaseDelay": Span(),
                "recommendedMaxDelay": Span(),
                "recommendedBackoff": OneOf(BACKOFFS),
            }
        ),
        "job": Fields(
            {
                "recommendedTtlSecondsAfterFinished": Whole(),
                "recommendedBackoffLimit": Kubernetes(Whole(0)),
                "recommendedRestartPolicy": Kubernetes(Text()),
            }
        ),
        "storage": Storage(),
        "images": Kubernetes(),
        "resources": Kubernetes(),
        "security": Kubernetes(),
        "service": Kubernetes(),
        "probes": Kubernetes(),
        "rbac": Kubernetes(),
    }
)

DELIVERY = Fields(
    {
        "dedupe": Fields({"mode": OneOf(("none", "token", "key")), "keyTemplate": Text()}),
        "retry": Fields({"maxAttempts": Whole(0), "baseDelay": Text(), "maxDelay": Text(), "backoff": OneOf(BACKOFFS)}),
    }
)

SECRETS = MapOf(Text(least=1))
LABELS = MapOf(Text())
TEXTS = ListOf(Text())
