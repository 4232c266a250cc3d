"""Who owns which field after applies and other writes (SRV-079)."""

from typing import Any

import pytest

from perdure.engine.resources.field_managers import (
    APPLY,
    UPDATE,
    FieldConflict,
    FieldManager,
    applied,
    leaves,
    managers_json,
    read_managers,
    updated,
)


def manager(name: str, operation: str = APPLY) -> FieldManager:
    return FieldManager(name, operation, "bubustack.io/v1alpha1", "2026-01-01T00:00:00Z", frozenset())


def thing(labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {"kind": "Story", "metadata": {"name": "x", "labels": labels or {}}, "spec": spec}


def apply(
    live: dict[str, Any], body: dict[str, Any], managers: list[FieldManager], name: str, *, force: bool = False
) -> Any:
    return applied(live, body, managers, manager(name), force=force)


def test_lists_are_one_field_and_members_of_maps_are_fields() -> None:
    item = thing({"a": "1"}, steps=[{"name": "s"}], policy={"timeouts": {"story": "1m"}, "with": {}})
    assert set(leaves(item)) == {
        ("metadata", "labels", "a"),
        ("spec", "steps"),
        ("spec", "policy", "timeouts", "story"),
        ("spec", "policy", "with"),
    }


def test_what_a_manager_no_longer_applies_goes_unless_another_owns_it() -> None:
    live, managers = apply(thing(), thing({"a": "1", "b": "1"}, version="1"), [], "one")
    live, managers = apply(live, thing({"b": "1"}), managers, "two")
    live, managers = apply(live, thing(version="1"), managers, "one")
    assert live["metadata"]["labels"] == {"b": "1"} and live["spec"] == {"version": "1"}
    owners = {owner.name: owner.fields for owner in managers}
    assert owners == {"two": {("metadata", "labels", "b")}, "one": {("spec", "version")}}


def test_who_applies_no_field_owns_none_and_is_no_manager() -> None:
    """SRV-079; without a field before and after it was an error of the server."""
    live, managers = apply(thing(version="1"), thing(), [], "nobody")
    assert live == thing(version="1") and managers == []
    _, managers = apply(live, thing({"a": "1"}), managers, "one")
    live, managers = apply(live, thing(), managers, "one")
    assert leaves(live) == leaves(thing(version="1")) and managers == []


def test_another_value_for_a_field_of_somebody_else_is_a_conflict_until_it_is_forced() -> None:
    live, managers = apply(thing(), thing(version="1", steps=[1]), [], "one")
    with pytest.raises(FieldConflict) as conflict:
        apply(live, thing(version="2", steps=[1]), managers, "two")
    causes: Any = conflict.value.facts["causes"]
    (cause,) = causes
    assert (cause["reason"], cause["field"]) == ("FieldManagerConflict", ".spec.version")
    live, managers = apply(live, thing(version="2", steps=[1]), managers, "two", force=True)
    assert live["spec"] == {"version": "2", "steps": [1]}
    assert {owner.name: owner.fields for owner in managers} == {
        "one": {("spec", "steps")},
        "two": {("spec", "version"), ("spec", "steps")},
    }


def test_any_other_write_owns_what_it_changes() -> None:
    live, managers = apply(thing(), thing({"a": "1"}, version="1"), [], "one")
    after = thing({"a": "2"}, version="1")
    managers = updated(live, after, managers, manager("label", UPDATE))
    assert {owner.key: owner.fields for owner in managers} == {
        ("one", APPLY): {("spec", "version")},
        ("label", UPDATE): {("metadata", "labels", "a")},
    }
    assert updated(after, after, managers, manager("again", UPDATE)) == managers
    managers = updated(after, thing(version="1"), managers, manager("label", UPDATE))
    assert [owner.name for owner in managers] == ["one"]
    assert read_managers(managers_json(managers)) == managers
