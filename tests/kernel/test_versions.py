"""Invariant 24: all records are read strictly, and a change of them is noticed."""

from hashlib import sha256
from typing import Any

import msgspec
import msgspec.inspect as inspect
import pytest

from perdure.kernel import events as e
from perdure.kernel import inputs as i
from perdure.kernel.codec import decode_turns, encode_snapshot, encode_turns, restore
from perdure.kernel.errors import NewerRecord
from perdure.kernel.execution import Execution
from perdure.kernel.json_values.values import RunId
from perdure.kernel.versions import RECORDS, pinned_language, read_pinned
from perdure.testing.drill import Drill
from perdure.wiring import languages
from tests.engine.documents import CHAIN

VOCABULARIES = {
    1: "77a9f6879ca07e6f",
    2: "f824331801e52f83",
    3: "d81cd15e6981f81a",
    4: "8028e963c27fe639",
    5: "6825193b287e11eb",
    6: "c15c54ee3b1635ad",
    7: "e09e5a86e8ea8859",
    8: "8fe729963663748e",
    9: "9bb8a8914cb601f0",
    10: "e8ce8e75bab162eb",
    11: "7bc11d096482bf30",
}
"""By the number of the vocabulary (`kernel.versions.RECORDS`), for all that was ever released."""


def test_a_changed_vocabulary_takes_a_number_of_its_own() -> None:
    """Servers tell each other by this number who can read more."""
    result = sha256("\n".join(_vocabulary()).encode()).hexdigest()[:16]

    assert VOCABULARIES.get(RECORDS) == result, (
        "what is recorded has changed: raise RECORDS in kernel/versions.py by one, unless that was done since the last"
        f" release, and note {RECORDS}: {result!r} here; an event whose meaning changed takes a new tag"
    )


def _vocabulary() -> list[str]:
    """Every kind of event, input and edition, member by member."""
    lines = [f"{name} {item.edition}" for name, item in sorted(_languages().items())]
    lines += [_line(kind) for kind in _kinds()]
    return sorted(lines)


def _line(kind: Any) -> str:
    members = " ".join(field.name for field in msgspec.structs.fields(kind))
    return f"{kind.__name__} {kind.__struct_config__.tag} {members}"


def _languages() -> dict[str, Any]:
    return {name: item for name, item in languages().items() if not getattr(item, "is_for_tests", False)}


def _kinds() -> set[type]:
    """All structures that can stand in a log or in a letter."""
    result: set[type] = set()
    known = [*e.KERNEL_EVENTS, i.AnyInput, *(event for item in _languages().values() for event in item.events)]
    waiting: list[Any] = [inspect.type_info(item) for item in known]
    while waiting:
        item = waiting.pop()
        if isinstance(item, inspect.StructType):
            if item.cls in result:
                continue
            result.add(item.cls)
            waiting += [field.type for field in item.fields]
        waiting += [getattr(item, name) for name in ("item_type", "key_type", "value_type") if hasattr(item, name)]
        waiting += [*getattr(item, "types", ()), *getattr(item, "item_types", ())]
    return result


def test_nothing_that_is_recorded_is_skipped_by_who_does_not_know_it() -> None:
    kinds: set[Any] = _kinds()
    lenient = [kind.__qualname__ for kind in kinds if not kind.__struct_config__.forbid_unknown_fields]

    assert len(kinds) > 100
    assert lenient == [], "an older program would take a new member for nothing"


def test_an_event_that_is_not_known_is_a_newer_record() -> None:
    row = msgspec.msgpack.encode([[1, [[99, "new"]]]])
    with pytest.raises(NewerRecord, match="99"):
        decode_turns(Drill(), row)


def test_a_member_that_is_not_known_is_a_newer_record() -> None:
    (fired,) = msgspec.msgpack.decode(encode_turns([(1, [e.TimerFired(7)])]))
    fired[1][0].append("new")
    with pytest.raises(NewerRecord, match="length"):
        decode_turns(Drill(), msgspec.msgpack.encode([fired]))


def test_what_is_damaged_is_no_newer_record() -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_turns(Drill(), b"\x92")
    with pytest.raises(msgspec.DecodeError):
        i.decode(b"\x92")


def test_an_input_that_is_not_known_is_a_newer_record() -> None:
    for value in ([99], [7, "reason", "by", "new"], {"type": "map"}):
        with pytest.raises(NewerRecord):
            i.decode(msgspec.msgpack.encode(value))


def test_a_snapshot_with_more_in_it_than_we_know_is_passed_over() -> None:
    """Its version should say so; whoever forgot that does no harm."""
    drill = Drill()
    program = drill.load(msgspec.json.encode(CHAIN))
    version, language, state, body = msgspec.msgpack.decode(encode_snapshot(Execution(RunId("r"), drill, program)))
    state[0] = {"of": "another shape"}
    execution = Execution(RunId("r"), drill, program)
    before = execution.state

    assert restore(execution, msgspec.msgpack.encode([version, language, state, body])) is False
    assert restore(execution, msgspec.msgpack.encode([version, language, state, b"\xc1"])) is False
    assert execution.state is before


def test_a_document_names_the_edition_of_its_language() -> None:
    class Later(Drill):
        edition = 3

    text = msgspec.json.encode(CHAIN)
    assert [pinned_language(Drill()), pinned_language(Later())] == ["drill", "drill@3"]
    assert read_pinned(Later(), "drill", text) == read_pinned(Later(), "drill@2", text) == Drill().load(text)
    with pytest.raises(NewerRecord, match="edition 3"):
        read_pinned(Drill(), "drill@3", text)
