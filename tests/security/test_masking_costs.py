"""Looking for secrets takes a bounded time, whatever the secrets and the texts are: a document may contain its own."""

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from perdure.kernel.outcomes import Failed, Outcome, Succeeded
from perdure.kernel.secrets import secret_masking, secret_search
from perdure.kernel.secrets.secret_masking import MOST_SECRETS, QUICK, Mask
from perdure.kernel.turn_budget import TooMuchToCompare
from perdure.workers.secrets import Masks, add_all, hide_json
from tests.workers.scene import on_loop

REDACTED = "[redacted]"


def mask_of(*secrets: str) -> Mask:
    mask = Mask()
    mask.add_all(secrets)
    return mask


@pytest.mark.parametrize(
    ("secret", "text"),
    [
        ("\\" * 4000 + '"', "\\" * 100_000),
        ("'" * 60 + "x", "'\\''" * 5_000 + "-x"),
        ('"' * 4000, '"' * 3999 + "x" + '"' * 3999),
        ("aa-" * 1300, "aa-" * 1299 + "aa+" + "aa-" * 1299),
    ],
    ids=["backslashes", "quotes of a shell", "quotes", "an anchor"],
)
def test_a_text_that_is_made_to_take_long_is_hidden_whole(secret: str, text: str) -> None:
    """A regular expression, in one call that holds the interpreter, stopped the engine for ever.

    The token of a keychain may be written in the document, so its author chooses both.
    """
    assert mask_of(secret).text(text) == REDACTED
    assert mask_of(secret).json(json.dumps([text]).encode()) == b'"[redacted]"'
    assert mask_of(secret).raw(text.encode()) == REDACTED.encode()


def test_long_texts_with_many_secrets_are_hidden_in_all_places() -> None:
    mask = mask_of("s3cr3t-Value!", "пароль-секрет")
    noise = 'x"\\-val ' * 40_000
    text = f"{noise}s3cr3t%2dValue\\u0021{noise}пароль-секрет{noise}"

    assert mask.text(text) == f"{noise}{REDACTED}{noise}{REDACTED}{noise}"
    assert json.loads(mask.json(json.dumps([text] * 3).encode())) == [mask.text(text)] * 3


def test_a_secret_is_found_across_the_ends_of_pieces() -> None:
    mask = mask_of("abc-def!ghi", "plainsecret")
    for secret in ("abc%2Ddef\\!ghi", "plainsecret"):
        for start in (*range(16_370, 16_400), *range(131_050, 131_090)):
            assert mask.text("x" * start + secret + "y" * 140_000) == "x" * start + REDACTED + "y" * 140_000


def test_a_mask_of_too_many_secrets_hides_every_text() -> None:
    """An answer of a token server, or an input, may contain as many as its author likes."""
    mask = mask_of(*(f"secret {number}" for number in range(MOST_SECRETS + 1)))

    assert (mask.text("any"), mask.json(b'{"a":"b"}'), mask.raw(b"any")) == (REDACTED, b'"[redacted]"', b"[redacted]")
    mask.add("another secret")
    assert mask.size == 0
    assert mask.outcome(Failed("A.B", "any", False)) == Failed(REDACTED, REDACTED, False)


def test_what_compares_too_much_is_hidden_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    mask = mask_of("s3cr3t-Value!")
    monkeypatch.setattr(secret_masking.Mask.text, "__defaults__", (10_000,))
    monkeypatch.setattr(secret_masking, "MOST_COMPARED", 10_000)

    assert mask.text("x" * 1000) == REDACTED
    assert mask.text("x") == "x"


@on_loop
async def test_what_takes_long_to_mask_is_masked_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A result of eight megabytes that contained a secret stopped the event loop for half a second."""
    threads: list[str] = []
    data = secret_search.Search.data

    def remember(search: secret_search.Search, value: object) -> object:
        threads.append(threading.current_thread().name)
        return data(search, value)

    monkeypatch.setattr(secret_search.Search, "data", remember)
    masks = Masks()
    mask = masks.of("family")
    mask.add("s3cr3t-Value!")
    value = json.dumps(["x" * 30] * 20_000 + ["s3cr3t-Value!"]).encode()
    with pytest.raises(TooMuchToCompare):
        mask.outcome(Succeeded(value), QUICK)
    reported: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    masks.report("family", mask, Succeeded(value), reported.set_result)

    assert not reported.done()
    outcome = await reported
    assert isinstance(outcome, Succeeded) and isinstance(outcome.value, bytes)
    assert json.loads(outcome.value)[-1] == REDACTED
    assert json.loads(await hide_json(mask, value))[-1] == REDACTED
    assert set(threads) == {"perdure-mask"}
    assert mask.holders == 0


@on_loop
async def test_what_is_quick_to_mask_is_masked_at_once() -> None:
    masks = Masks()
    mask = masks.of("family")
    mask.add("s3cr3t-Value!")
    outcomes: list[Outcome] = []
    masks.report("family", mask, Succeeded(b'"s3cr3t-Value!"'), outcomes.append)

    assert outcomes == [Succeeded(b'"[redacted]"')]


@on_loop
async def test_many_secrets_are_added_in_a_thread() -> None:
    mask = Mask()
    await add_all(mask, [f"secret number {number}" for number in range(1000)])

    assert mask.text("secret number 999 is secret+number+7") == f"{REDACTED} is {REDACTED}"
    assert not mask.is_quick(1000) and mask_of("s3cr3t-Value!").is_quick(1000)


def test_masks_of_idle_families_are_bounded_by_their_size() -> None:
    """Each run could leave a secret of many megabytes in memory, in two dozen forms."""
    masks = Masks(kept=100_000)
    busy = masks.of("busy")
    busy.add("b" * 40_000)
    for number in range(10):
        mask = masks.of(f"idle {number}")
        mask.add("x" * 20_000)
        masks.report(f"idle {number}", mask, Succeeded(), lambda outcome: None)

    assert masks.of("busy") is busy
    assert not masks.of("idle 0").hides
    assert mask_of("x" * 1_000_000).size <= 2_000_000


def test_secrets_that_threads_add_at_once_are_all_hidden() -> None:
    """What is added in a thread must not undo what another task of the family adds meanwhile."""
    mask = Mask()
    secrets = [[f"secret {thread} {number}" for number in range(25)] for thread in range(8)]

    def add(texts: list[str]) -> None:
        for text in texts:
            mask.add(text)
            assert mask.text(text) == REDACTED

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(add, secrets))

    assert not [text for texts in secrets for text in texts if mask.text(text) != REDACTED]
