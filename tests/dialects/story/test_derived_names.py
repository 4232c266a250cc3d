"""Derived names and keys. The test vectors are those of the contract."""

from typing import Any

import pytest

from perdure.dialects.story.resources.names import (
    business_key,
    canonical,
    claim_name,
    compose,
    default_key,
    input_hash,
    run_name,
    trigger_name,
)


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (("a" * 60, "step-one"), "a" * 50 + "-7f7f6a44ff7c"),
        (("run", "step"), "run-step"),
        (("Run_1", "Step.One!"), "run-1-step-one"),
        (("run", "fan", "branch"), "run-fan-branch"),
        (("--", "!!"), "resource"),
        ((), "resource"),
        (("é", "x"), "x"),
        (("a" * 31, "b" * 31), "a" * 31 + "-" + "b" * 31),
    ],
)
def test_composed_names(parts: tuple[str, ...], name: str) -> None:
    """STY-014"""
    assert compose(*parts) == name


def test_a_composed_name_that_is_too_long_loses_a_dash_at_the_cut() -> None:
    """STY-014: 49 letters, then the dash that would be the fiftieth character."""
    name = compose("a" * 49, "b" * 20)

    assert name.startswith("a" * 49 + "-")
    assert name[49:51] != "--"
    assert len(name) == 49 + 1 + 12


def test_composed_names_differ_when_only_raw_parts_differ() -> None:
    """STY-014: the hash is over the raw parts, each closed by a zero byte."""
    assert compose("a" * 70, "b") != compose("a" * 69 + "A", "b")
    assert compose("a" * 70, "b-c") != compose("a" * 70 + "-b", "c")


def test_default_idempotency_keys() -> None:
    """STY-016"""
    assert default_key("default", "r", "s") == "ns/default/storyrun/r/step/s"
    exact = default_key("n", "r" * (256 - len("ns/n/storyrun//step/s")), "s")
    assert len(exact) == 256
    assert exact.startswith("ns/")
    longer = default_key("n", "r" * 240, "s")
    assert longer.startswith("sha256:")
    assert len(longer) == 7 + 64


@pytest.mark.parametrize(
    ("rendered", "key"), [(" order-7 ", "order-7"), ("x" * 300, "x" * 256), ("  ", None), ("", None)]
)
def test_business_keys_are_trimmed_and_cut(rendered: str, key: str | None) -> None:
    """STY-016"""
    assert business_key(rendered) == key


@pytest.mark.parametrize(
    ("namespace", "story", "token", "name"),
    [
        ("default", "orders", "source-event-id-123", "orders-source-event-id-123-e65ebead00ce2db9"),
        ("", "orders", "abc-1", "orders-abc-1"),
        ("", "orders", "GitHub:PR#37", "orders-github-pr-37-65430a3a63548fe2"),
        ("default", "orders", "###", "orders-ea1a0e546091f38b"),
    ],
)
def test_run_names_derive_from_tokens(namespace: str, story: str, token: str, name: str) -> None:
    """STY-144"""
    assert run_name(namespace, story, token) == name


def test_a_long_token_leaves_the_story_and_the_hash() -> None:
    """STY-144: what does not fit into 253 characters is cut, and stays distinct by its hash."""
    name = run_name("default", "orders", "x" * 300)
    assert name.startswith("orders-")
    assert len(name) == len("orders-") + 16
    longest = run_name("default", "s" * 250, "x" * 300)
    assert len(longest) == 253
    assert longest[: 253 - 17] == "s" * 236
    dashes = run_name("default", "-" * 250, "x" * 300)
    assert dashes.startswith("s-")


def test_trigger_and_claim_names() -> None:
    """STY-147, STY-166"""
    assert trigger_name("default", "orders", "github:pull_request:37") == "orders-trigger-21f52154fe18d782"
    assert claim_name("default", "orders-abc-charge", "provider.call") == "orders-abc-charge-effect-63f585edc0848bb0"
    assert len(trigger_name("default", "s" * 253, "k")) == 253
    assert len(claim_name("default", "s" * 253, "k")) == 253


@pytest.mark.parametrize(
    ("inputs", "digest"),
    [
        ({}, "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"),
        (None, "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"),
        ({"b": 1, "a": [True, None, "x"]}, "54a65415ad370228851a1da4b31b6fd42dc58b19a50d35cae759325f7388ce64"),
        ({"q": "a<b&c>d", "é": 1.5}, "2b52fa94905782287e289fe717a19ea918d30c14c76063e2ffc77423ae89114d"),
    ],
)
def test_input_hashes(inputs: dict[str, Any] | None, digest: str) -> None:
    """STY-145"""
    assert input_hash(inputs) == digest


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"),
        (1e21, "1e+21"),
        (10**21, "1e+21"),
        (10**20, "100000000000000000000"),
        (1e-7, "1e-7"),
        (1e-6, "0.000001"),
        (0.1, "0.1"),
        (-2.5, "-2.5"),
        (2**53 + 1, "9007199254740992"),
        ("\u2028\u2029", '"\\u2028\\u2029"'),
        ("a\n\r\t\b\f\x01\x1f", '"a\\n\\r\\t\\b\\f\\u0001\\u001f"'),
        ('"\\/', '"\\"\\\\/"'),
        ({"z": 1, "a": {"y": 2, "x": 3}, "Z": 0}, '{"Z":0,"a":{"x":3,"y":2},"z":1}'),
        ({"\ufffd": 1, "\U0001f600": 2}, '{"\ufffd":1,"\U0001f600":2}'),
        ([], "[]"),
    ],
)
def test_canonical_json(value: Any, text: str) -> None:
    """STY-145: every number is a double, every member in the order of its bytes."""
    assert canonical(value) == text
