"""How an Impulse delivers an event: inputs, token, delays, throttle; without a clock."""

from hashlib import sha256
from typing import Any

import pytest

from perdure.dialects.story.triggers.delivery import (
    LEASE,
    RENEW_EVERY,
    BadDelivery,
    DeliveryPolicy,
    ImpulseThrottle,
    map_event,
    release,
    renew,
    token_for,
)
from perdure.dialects.story.triggers.impulse_counts import count_decision, count_refusal, count_throttled
from perdure.kernel.json_values.values import SECOND
from tests.services.story_engine import impulse, impulse_template

NOW = 1_800_000_000 * SECOND


def policy(own: Any = None, template: Any = None) -> DeliveryPolicy:
    above = impulse(deliveryPolicy=own) if own is not None else impulse()
    below = impulse_template(deliveryPolicy=template) if template is not None else impulse_template()
    return DeliveryPolicy.read(above, below)


def test_an_impulse_overrides_its_template_field_by_field() -> None:
    """STY-154"""
    delivery = policy(
        {"retry": {"maxAttempts": 5}, "dedupe": {"mode": "token"}},
        {"retry": {"maxAttempts": 2, "baseDelay": "2s", "backoff": "linear"}, "dedupe": {"mode": "none"}},
    )
    assert (delivery.attempts, delivery.base, delivery.backoff, delivery.mode) == (5, 2 * SECOND, "linear", "token")
    assert delivery.ceiling == 300 * SECOND
    assert policy(None, {"dedupe": {"mode": "token"}}).mode == "token"


def test_without_words_nothing_is_retried_or_told_apart() -> None:
    """STY-155 STY-156"""
    assert (policy().mode, policy().attempts) == ("none", 1)
    assert policy({"retry": {"maxAttempts": 0}}).attempts == 1
    assert token_for(policy(), impulse(), {}, None) is None
    assert token_for(policy(), impulse(), {}, "T") == "T"


@pytest.mark.parametrize(
    ("backoff", "waits"),
    [("exponential", [1, 2, 4, 8, 10]), ("linear", [1, 2, 3, 4, 5]), ("constant", [1, 1, 1, 1, 1])],
)
def test_waits_before_further_attempts(backoff: str, waits: list[int]) -> None:
    """STY-156"""
    delivery = policy({"retry": {"maxAttempts": 6, "baseDelay": "1s", "maxDelay": "10s", "backoff": backoff}})
    assert [delivery.wait_before(n, 0.5) for n in range(2, 7)] == [wait * SECOND for wait in waits]


def test_waits_are_spread_and_never_above_the_most() -> None:
    """STY-156"""
    delivery = policy({"retry": {"baseDelay": "8s", "maxDelay": "10s"}})
    assert delivery.wait_before(2, 0) == 6 * SECOND
    assert delivery.wait_before(2, 1) == 10 * SECOND
    assert delivery.wait_before(3, 0) == 7.5 * SECOND
    assert policy({"retry": {"maxDelay": "0s"}}).wait_before(20, 1) == 300 * SECOND


def test_a_token_that_the_policy_asks_for_must_be_there() -> None:
    """STY-155"""
    delivery = policy({"dedupe": {"mode": "token"}})
    assert token_for(delivery, impulse(), {}, "T") == "T"
    for missing in (None, ""):
        with pytest.raises(BadDelivery, match=r"^spec\.deliveryPolicy\.dedupe\.mode is token, but no token was given$"):
            token_for(delivery, impulse(), {}, missing)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("  {{ inputs.id }}-{{ story.name }} ", "7-orders"),
        ("{{ impulse.namespace }}/{{ impulse.name }}/{{ story.namespace }}", "default/hook/default"),
        ("{{ inputs.id }}", "7"),
        ("{{ inputs.all }}", '{"a":[1,true],"b":null}'),
        ("always", "always"),
    ],
)
def test_keys_are_hashes_of_what_the_template_gives(template: str, text: str) -> None:
    """STY-155"""
    delivery = policy({"dedupe": {"mode": "key", "keyTemplate": template}})
    inputs = {"id": 7, "all": {"b": None, "a": [1.0, True]}}
    token = sha256(text.encode()).hexdigest()
    assert token_for(delivery, impulse(), inputs, None) == token
    assert token_for(delivery, impulse(), inputs, token) == token
    with pytest.raises(BadDelivery, match=r"differs from the result of spec\.deliveryPolicy\.dedupe\.keyTemplate$"):
        token_for(delivery, impulse(), inputs, "T")


@pytest.mark.parametrize("template", ["{{ inputs.none }}", "{{ inputs.blank }}", "{{ now }}", "{{ steps.a.output }}"])
def test_keys_that_cannot_be_made(template: str) -> None:
    """STY-155: nothing left, missing, not deterministic, no such root."""
    delivery = policy({"dedupe": {"mode": "key", "keyTemplate": template}})
    with pytest.raises(BadDelivery, match=r"^spec\.deliveryPolicy\.dedupe\.keyTemplate(: | gave an empty key$)"):
        token_for(delivery, impulse(), {"blank": "  "}, None)


@pytest.mark.parametrize(
    "template",
    [
        "order-{{ inputs.none }}",
        "{{ inputs.id }}{{ if inputs.none }}x{{ end }}",
        "{{ inputs.none | toJson }}",
        '{{ get inputs "none" }}-{{ inputs.id }}',
        "{{ coalesce inputs.none inputs.other }}",
    ],
)
def test_a_key_that_reads_something_absent_is_refused(template: str) -> None:
    """STY-280: else every delivery without it would be the same one."""
    delivery = policy({"dedupe": {"mode": "key", "keyTemplate": template}})
    with pytest.raises(BadDelivery, match=r"absent|missing"):
        token_for(delivery, impulse(), {"id": 7}, None)


@pytest.mark.parametrize(
    "template", ["{{ inputs.text }}", '{{ default "7" inputs.none }}', '{{ inputs.none | default "7" }}']
)
def test_a_key_may_say_what_to_use_for_something_absent_or_hold_any_text(template: str) -> None:
    """STY-280: absent is what is not there, whatever a text that is there looks like."""
    delivery = policy({"dedupe": {"mode": "key", "keyTemplate": template}})

    assert token_for(delivery, impulse(), {"text": "<no value>"}, None)


def test_a_mapping_makes_inputs_of_an_event() -> None:
    """STY-013"""
    event = {"body": {"order": {"id": 7, "lines": [1, 2]}}}
    mapping = {"id": "{{ context.body.order.id }}", "lines": "{{ .context.body.order.lines }}", "source": "hook"}
    assert map_event(impulse(mapping=mapping), event) == {"id": 7, "lines": [1, 2], "source": "hook"}
    assert map_event(impulse(mapping={"all": "{{ context }}"}), [1]) == {"all": [1]}
    assert map_event(impulse(), event) == event
    assert map_event(impulse(), None) == {}
    for bad in (impulse(mapping={"id": "{{ context.body.gone.id }}"}), impulse()):
        with pytest.raises(BadDelivery):
            map_event(bad, "text" if "mapping" not in bad["spec"] else event)


def test_places_come_before_the_bucket_and_are_given_back() -> None:
    """STY-157"""
    throttle = ImpulseThrottle.read(impulse(throttle={"maxInFlight": 2}))
    state: Any = {}
    for holder in "ab":
        state, wait = throttle.acquire(state, holder, NOW)
        assert wait == 0
    state, wait = throttle.acquire(state, "c", NOW)
    assert wait > 0 and set(state["inFlight"]) == {"a", "b"}
    state, wait = throttle.acquire(release(state, "a"), "c", NOW)
    assert wait == 0
    assert throttle.acquire(state, "d", NOW + LEASE + 1)[1] == 0  # whoever died with a place does not keep it


def test_a_place_is_kept_for_as_long_as_it_is_renewed() -> None:
    """STY-157: however long a delivery takes; a place that was given back is not taken again by a late renewal."""
    throttle = ImpulseThrottle.read(impulse(throttle={"maxInFlight": 1}))
    state, _ = throttle.acquire({}, "a", NOW)
    for at in range(NOW, NOW + 5 * LEASE, RENEW_EVERY):
        state = renew(state, "a", at)
        assert throttle.acquire(state, "b", at + RENEW_EVERY)[1] > 0
    assert renew(release(state, "a"), "a", NOW) == release(state, "a")


def test_the_bucket_fills_evenly_up_to_its_burst() -> None:
    """STY-157"""
    throttle = ImpulseThrottle.read(impulse(throttle={"ratePerSecond": 2, "burst": 3}))
    state: Any = {}
    waits = []
    for _ in range(4):
        state, wait = throttle.acquire(state, "x", NOW)
        waits.append(wait)
    assert waits == [0, 0, 0, SECOND // 2]
    assert throttle.acquire(state, "x", NOW + SECOND // 2)[1] == 0
    state, _ = throttle.acquire(state, "x", NOW + 3600 * SECOND)
    assert state["tokens"] == 2
    late, _ = throttle.acquire(state, "x", NOW)  # somebody whose clock is behind fills nothing
    assert late == {**state, "tokens": 1}
    assert ImpulseThrottle.read(impulse(throttle={"ratePerSecond": 5})).burst == 5
    assert ImpulseThrottle.read(impulse(throttle={"maxInFlight": 0})).is_off and ImpulseThrottle.read(impulse()).is_off


def test_counters_only_grow_and_instants_only_go_forward() -> None:
    """STY-158"""
    status = count_decision({}, True, NOW)
    status = count_decision(status, False, NOW - SECOND)
    status = count_throttled(count_refusal(status, NOW + SECOND), NOW)
    assert {name: status[name] for name in status if isinstance(status[name], int)} == {
        "triggersReceived": 3,
        "storiesLaunched": 1,
        "failedTriggers": 2,
        "throttledTriggers": 1,
    }
    assert status["lastTrigger"] > status["lastSuccess"] == status["lastThrottled"]
