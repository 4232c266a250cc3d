"""The form of a structured error (STY-256)."""

from perdure.dialects.story.document.shapes import Fields, Flag, Object, OneOf, Text, Whole

TYPES = (
    "timeout",
    "storage_error",
    "serialization_error",
    "validation_error",
    "initialization_error",
    "execution_error",
    "unknown",
)
EXIT_CLASSES = ("success", "retry", "terminal", "rateLimited", "unknown")

STRUCTURED_ERROR = Fields(
    {
        "version": OneOf(("v1",)),
        "type": OneOf(TYPES),
        "message": Text(least=1),
        "retryable": Flag(),
        "exitCode": Whole(0),
        "exitClass": OneOf(EXIT_CLASSES),
        "code": Text(),
        "details": Object(),
    },
    required=("version", "type", "message"),
)
