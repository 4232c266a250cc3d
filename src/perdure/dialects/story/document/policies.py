"""Shapes of the policy blocks that Stories, steps and Engrams share (sections 1.4 to 1.6)."""

from typing import Any

import msgspec

from perdure.dialects.story.document.cursor import INVALID, Cursor
from perdure.dialects.story.document.shapes import (
    BooleanShape,
    ChoiceShape,
    DurationShape,
    EitherShape,
    FieldsShape,
    IntegerShape,
    KubernetesShape,
    ListShape,
    MapShape,
    NameShape,
    ObjectShape,
    Shape,
    TextShape,
)

MODES = ("job", "deployment", "statefulset")
IN_DOUBT = ("repeat", "hold")  # what to do with an effect whose outcome is unknown
BACKOFFS = ("exponential", "linear", "constant")

RETRY = FieldsShape(
    {
        "maxRetries": IntegerShape(0, 10),
        "delay": DurationShape(),
        "maxDelay": DurationShape(),
        "jitter": IntegerShape(0, 100),
        "backoff": ChoiceShape(BACKOFFS),
    }
)

CACHE = FieldsShape(
    {
        "enabled": BooleanShape(),
        "key": TextShape(),
        "salt": TextShape(),
        "mode": ChoiceShape(("read", "write", "readWrite")),
        "ttlSeconds": IntegerShape(),
    }
)

_STORAGE = FieldsShape(
    {
        "s3": FieldsShape(
            {
                "bucket": TextShape(least=1),
                "region": TextShape(),
                "endpoint": TextShape(),
                "authentication": ObjectShape(),
                "usePathStyle": BooleanShape(),
            },
            required=("bucket",),
        ),
        "file": FieldsShape(
            {"path": TextShape(), "volumeClaimName": KubernetesShape(TextShape()), "emptyDir": KubernetesShape()}
        ),
        "timeoutSeconds": IntegerShape(0),
    }
)


class StorageShape(msgspec.Struct, frozen=True):
    """Where large values are stored. S3 is accepted only if a driver for it is configured (STY-007)."""

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


_DEBUG = EitherShape(BooleanShape(), TextShape(), "true, false or a log level")

_EXECUTION: dict[str, Shape] = {
    "timeout": DurationShape(),
    "retry": RETRY,
    "cache": CACHE,
    "maxInlineSize": IntegerShape(0),
    "debug": _DEBUG,
    "job": FieldsShape(
        {
            "ttlSecondsAfterFinished": IntegerShape(),
            "storyRunRetentionSeconds": IntegerShape(),
            "backoffLimit": KubernetesShape(IntegerShape(0)),
            "restartPolicy": KubernetesShape(TextShape()),
        }
    ),
    "realtime": FieldsShape({"ttlSecondsAfterFinished": IntegerShape()}),
    "storage": StorageShape(),
    "effectsInDoubt": ChoiceShape(IN_DOUBT),
    "resources": KubernetesShape(),
    "security": KubernetesShape(),
    "placement": KubernetesShape(),
    "imagePullPolicy": KubernetesShape(TextShape()),
    "serviceAccountName": KubernetesShape(NameShape(253)),
    "automountServiceAccountToken": KubernetesShape(BooleanShape()),
    "probes": KubernetesShape(),
    "rbac": KubernetesShape(),
}

OVERRIDES = FieldsShape(_EXECUTION)
POLICY = FieldsShape({**_EXECUTION, "maxRecursionDepth": IntegerShape(1)})

STEP_RUN_OVERRIDES = FieldsShape(
    {
        **_EXECUTION,
        "cpuRequest": KubernetesShape(TextShape()),
        "cpuLimit": KubernetesShape(TextShape()),
        "memoryRequest": KubernetesShape(TextShape()),
        "memoryLimit": KubernetesShape(TextShape()),
        "backoffLimit": KubernetesShape(IntegerShape(0)),
        "restartPolicy": KubernetesShape(TextShape()),
        "ttlSecondsAfterFinished": IntegerShape(),
    }
)

TEMPLATE_EXECUTION = FieldsShape(
    {
        "timeout": DurationShape(),
        "retry": FieldsShape(
            {
                "recommendedMaxRetries": IntegerShape(0),
                "recommendedBaseDelay": DurationShape(),
                "recommendedMaxDelay": DurationShape(),
                "recommendedBackoff": ChoiceShape(BACKOFFS),
            }
        ),
        "job": FieldsShape(
            {
                "recommendedTtlSecondsAfterFinished": IntegerShape(),
                "recommendedBackoffLimit": KubernetesShape(IntegerShape(0)),
                "recommendedRestartPolicy": KubernetesShape(TextShape()),
            }
        ),
        "storage": StorageShape(),
        "images": KubernetesShape(),
        "resources": KubernetesShape(),
        "security": KubernetesShape(),
        "service": KubernetesShape(),
        "probes": KubernetesShape(),
        "rbac": KubernetesShape(),
    }
)

SIGNATURES = ("standard", "github", "stripe")

DELIVERY = FieldsShape(
    {
        "dedupe": FieldsShape({"mode": ChoiceShape(("none", "token", "key")), "keyTemplate": TextShape()}),
        "signature": FieldsShape(
            {
                "form": ChoiceShape(SIGNATURES),
                "secretRef": FieldsShape({"name": TextShape(least=1), "key": TextShape(least=1)}),
            }
        ),
        "retry": FieldsShape(
            {
                "maxAttempts": IntegerShape(0),
                "baseDelay": TextShape(),
                "maxDelay": TextShape(),
                "backoff": ChoiceShape(BACKOFFS),
            }
        ),
    }
)

SECRETS = MapShape(TextShape(least=1))
LABELS = MapShape(TextShape())
TEXTS = ListShape(TextShape())
