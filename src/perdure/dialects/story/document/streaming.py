"""Streaming settings of Transports and of the transports of Stories (section 15, STY-040)."""

from collections.abc import Collection
from typing import Any

import msgspec

from perdure.dialects.story.document import templates
from perdure.dialects.story.document.cursor import DOUBTFUL, INVALID, Cursor
from perdure.dialects.story.document.shapes import (
    BooleanShape,
    ChoiceShape,
    FieldsShape,
    IntegerShape,
    ListShape,
    NameShape,
    Shape,
    TextShape,
    shown,
)
from perdure.dialects.story.resources.durations import BadDuration, read_positive
from perdure.dialects.story.values import template_roots
from perdure.expressions.gotemplate import BadStructure, Structure
from perdure.kernel.documents.problems import guess


class PositiveDurationShape(msgspec.Struct, frozen=True):
    def validate(self, cursor: Cursor) -> None:
        try:
            read_positive(cursor.value)
        except BadDuration as refusal:
            cursor.problem(INVALID, f"must be a positive duration: {refusal}")

    def tidy(self, value: Any) -> Any:
        return value


_COUNT = IntegerShape(0)
_SOME = IntegerShape(1)
_PERCENT = IntegerShape(0, 100)
_AMOUNT: dict[str, Shape] = {"messages": _COUNT, "bytes": _COUNT}

SETTINGS = FieldsShape(
    {
        "backpressure": FieldsShape(
            {
                "buffer": FieldsShape(
                    {
                        "maxMessages": _COUNT,
                        "maxBytes": _COUNT,
                        "maxAgeSeconds": _COUNT,
                        "dropPolicy": ChoiceShape(("drop_newest", "drop_oldest")),
                    }
                )
            }
        ),
        "flowControl": FieldsShape(
            {
                "mode": ChoiceShape(("none", "credits", "window")),
                "initialCredits": FieldsShape(_AMOUNT),
                "ackEvery": FieldsShape({**_AMOUNT, "maxDelay": PositiveDurationShape()}),
                "pauseThreshold": FieldsShape({"bufferPct": _PERCENT}),
                "resumeThreshold": FieldsShape({"bufferPct": _PERCENT}),
            }
        ),
        "delivery": FieldsShape(
            {
                "ordering": ChoiceShape(("none", "per_stream", "per_partition")),
                "semantics": ChoiceShape(("best_effort", "at_least_once")),
                "replay": FieldsShape(
                    {
                        "mode": ChoiceShape(("none", "memory", "durable")),
                        "retentionSeconds": _COUNT,
                        "checkpointInterval": PositiveDurationShape(),
                    }
                ),
            }
        ),
        "routing": FieldsShape(
            {
                "mode": ChoiceShape(("auto", "hub", "p2p")),
                "fanOut": ChoiceShape(("sequential", "parallel")),
                "maxDownstreams": _SOME,
                "rules": ListShape(
                    FieldsShape(
                        {
                            "name": TextShape(),
                            "when": TextShape(),
                            "action": ChoiceShape(("allow", "deny")),
                            "target": FieldsShape({"steps": ListShape(TextShape())}),
                        }
                    )
                ),
            }
        ),
        "lanes": ListShape(
            FieldsShape(
                {
                    "name": NameShape(),
                    "kind": ChoiceShape(("audio", "video", "binary", "payload", "control")),
                    "direction": ChoiceShape(("publish", "subscribe", "bidirectional")),
                    "description": TextShape(),
                    "maxMessages": _COUNT,
                    "maxBytes": _COUNT,
                }
            )
        ),
        "fanIn": FieldsShape(
            {
                "mode": ChoiceShape(("all", "any", "quorum")),
                "quorum": _SOME,
                "timeoutSeconds": _COUNT,
                "maxEntries": _SOME,
            }
        ),
        "partitioning": FieldsShape(
            {
                "mode": ChoiceShape(("none", "preserve", "hash")),
                "key": TextShape(least=1),
                "partitions": _SOME,
                "sticky": BooleanShape(),
            }
        ),
        "lifecycle": FieldsShape(
            {
                "strategy": ChoiceShape(("rolling", "drain_cutover", "blue_green")),
                "drainTimeoutSeconds": _COUNT,
                "maxInFlight": _COUNT,
            }
        ),
        "observability": FieldsShape(
            {
                "metrics": FieldsShape({"enabled": BooleanShape()}),
                "tracing": FieldsShape(
                    {
                        "enabled": BooleanShape(),
                        "sampleRate": _PERCENT,
                        "samplePolicy": ChoiceShape(("rate", "random", "always", "never")),
                    }
                ),
                "watermark": FieldsShape({"enabled": BooleanShape(), "timestampSource": TextShape()}),
            }
        ),
        "recording": FieldsShape(
            {
                "mode": ChoiceShape(("off", "metadata", "payload")),
                "sampleRate": _PERCENT,
                "retentionSeconds": _COUNT,
                "redactFields": ListShape(TextShape(least=1)),
            }
        ),
    }
)


def check(cursor: Cursor, steps: Collection[str] | None) -> None:
    """Check rules between the settings. `steps` are the allowed targets of routing rules; None if unknown."""
    _lanes(cursor.at("lanes"))
    _quorum(cursor.at("fanIn"))
    _doubts(cursor)
    for rule in cursor.at("routing", "rules").items():
        if isinstance(rule.at("when").value, str):
            _condition(rule.at("when"), is_shared=steps is None)
        _targets(rule.at("target", "steps"), steps)


def _condition(cursor: Cursor, *, is_shared: bool) -> None:
    """A rule of a Story must be valid; published Transports have rules that are not, and are accepted (STR-017)."""
    if not is_shared:
        templates.check(cursor, template_roots.STREAMING_RUNTIME)
        return
    try:
        Structure(cursor.value, template_roots.STREAMING_RUNTIME)
    except BadStructure:
        cursor.warn(DOUBTFUL, "the condition of the rule is not a valid template, so the rule never matches")


def _doubts(cursor: Cursor) -> None:
    """What is allowed and hardly meant (STR-010, 018, 075)."""
    delivery, partitioning = cursor.at("delivery"), cursor.at("partitioning")
    if delivery.at("semantics").value == "at_least_once" and delivery.at("replay", "mode").value in (None, "", "none"):
        delivery.warn(DOUBTFUL, "at_least_once needs a replay mode; memory is used")
    is_hashed = partitioning.at("mode").value == "hash"
    if is_hashed and not partitioning.at("key").value:
        partitioning.warn(DOUBTFUL, "mode hash without a key puts every packet into one partition")
    if partitioning.at("partitions").value is not None and not is_hashed:
        partitioning.at("partitions").warn(DOUBTFUL, "partitions has no effect unless mode is hash")
    pause = cursor.at("flowControl", "pauseThreshold", "bufferPct").value
    resume = cursor.at("flowControl", "resumeThreshold", "bufferPct").value
    if isinstance(pause, int) and isinstance(resume, int) and resume >= pause:
        cursor.at("flowControl").warn(
            DOUBTFUL, f"it resumes at {resume} % and pauses at {pause} %: it may do so in turn"
        )


def _lanes(cursor: Cursor) -> None:
    seen: dict[str, set[str]] = {"name": set(), "kind": set()}
    for lane in cursor.items():
        for field, values in seen.items():
            value = lane.at(field).value
            if value is None or value == "":
                lane.problem(INVALID, f"a lane must have a {field}")
            elif isinstance(value, str) and value in values:
                lane.at(field).problem(INVALID, f"duplicate lane {field} {shown(value)}")
            elif isinstance(value, str):
                values.add(value)


def _quorum(cursor: Cursor) -> None:
    quorum = cursor.at("quorum")
    if cursor.at("mode").value == "quorum":
        if quorum.value is None:
            cursor.problem(INVALID, "quorum must be set when mode=quorum")
    elif quorum.value is not None:
        quorum.problem(INVALID, "quorum is only valid when mode=quorum")


def _targets(cursor: Cursor, steps: Collection[str] | None) -> None:
    seen: set[str] = set()
    for target in cursor.items():
        name = target.value
        if not isinstance(name, str):
            continue
        if not name.strip():
            target.problem(INVALID, "a target step must not be empty")
        elif steps is not None and name not in steps:
            target.problem(INVALID, f"unknown step {shown(name)}{guess(name, tuple(steps))}")
        elif name in seen:
            target.problem(INVALID, f"duplicate step {shown(name)}")
        seen.add(name)
