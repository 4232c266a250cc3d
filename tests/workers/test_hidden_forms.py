"""A secret is hidden in every form that a text may give it, and before anything is encoded, cut or shortened."""

import base64
import html
import json
import random
import string
import sys
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.workers.scene import Ledger, at_work, details_of, on_loop, task, value_of

from perdure.kernel.outcomes import Outcome
from perdure.kernel.secrets.sealed_arguments import seal_by_place
from perdure.kernel.secrets.secret_masking import Mask

SECRETS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=7, max_size=40).filter(
    lambda s: s.strip() == s
)


def hidden(secret: str, text: str) -> str:
    mask = Mask()
    mask.add(secret)
    return mask.text(text)


@given(SECRETS, st.binary(max_size=20), st.binary(max_size=20))
def test_a_secret_inside_of_base64_is_hidden(secret: str, before: bytes, after: bytes) -> None:
    """Padded or not, safe for URLs or not, and wherever in a group of three it begins."""
    data = before + secret.encode() + after
    for written in (base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode().rstrip("=")):
        assert "[redacted]" in hidden(secret, written)


@given(SECRETS)
def test_a_secret_inside_of_json_and_urls_is_hidden(secret: str) -> None:
    once = json.dumps({"k": secret})
    forms = [secret, once, json.dumps(once), json.dumps({"k": secret}, ensure_ascii=False), repr(secret)]
    forms += [quote(secret), quote(secret, safe=""), quote_plus(secret), quote(secret, safe="").lower()]

    for written in forms[:-1]:
        assert "[redacted]" in hidden(secret, f"x={written}&y")
    if secret.isupper() is False and secret == secret.lower():
        assert "[redacted]" in hidden(secret, forms[-1])


WAYS: list[Callable[[str], str]] = [
    lambda c: c,
    lambda c: json.dumps(c)[1:-1],
    lambda c: json.dumps(json.dumps(c)[1:-1])[1:-1],
    lambda c: quote(c, safe=""),
    lambda c: quote(c, safe="").lower(),
    lambda c: quote(quote(c, safe=""), safe=""),
    lambda c: "".join(f"\\x{byte:02x}" for byte in c.encode()),
    lambda c: f"&#{ord(c)};",
    lambda c: f"&#x{ord(c):X};",
    lambda c: json.dumps(c)[1:-1].upper().replace("\\U", "\\u"),
    lambda c: html.escape(c),
    lambda c: "+" if c == " " else c,
    lambda c: "\\/" if c == "/" else c,
]
"""How a character that is no message or digit may be written."""


@given(SECRETS, st.lists(st.sampled_from(range(len(WAYS))), min_size=40, max_size=40))
def test_a_secret_whose_characters_are_written_in_different_ways_is_hidden(secret: str, ways: list[int]) -> None:
    """Servers differ in what they escape: no list of whole writings is complete."""
    plain = [c.isascii() and c.isalnum() for c in secret]
    written = "".join(c if is_plain else WAYS[way](c) for c, is_plain, way in zip(secret, plain, ways, strict=False))

    assert hidden(secret, f"<{written}>") == "<[redacted]>"
    mask = Mask()
    mask.add(secret)
    assert json.loads(mask.json(json.dumps({"k": f"<{written}>"}).encode())) == {"k": "<[redacted]>"}


@given(SECRETS)
def test_a_secret_in_hexadecimal_digits_is_hidden(secret: str) -> None:
    assert hidden(secret, f"<{secret.encode().hex()}>") == hidden(secret, f"<{secret.encode().hex().upper()}>")
    assert secret.encode().hex() not in hidden(secret, secret.encode().hex())


@given(SECRETS, st.binary(max_size=10))
def test_a_secret_inside_of_bytes_that_are_not_text_is_hidden(secret: str, noise: bytes) -> None:
    mask = Mask()
    mask.add(secret)

    assert secret.encode() not in mask.raw(b"\xff\xfe" + noise + secret.encode() + b"\x80")


def planted() -> str:
    messages = string.ascii_letters + string.digits + '"\\ é漢%+/='
    return "s3" + "".join(random.choices(messages, k=18)).strip() + "end"


async def outcome_with(secret: str, provider: str, arguments: dict[str, Any], *path: str | int) -> Outcome:
    sealed = msgspec.structs.replace(task(provider), arguments=seal_by_place(arguments, [(path, "S")]), sealed=True)
    async with at_work(resolve_secret={"S": secret}.get) as worker:
        return await worker.run(sealed, Ledger())


def parts_of(secret: str, length: int = 8) -> set[str]:
    return {secret[at : at + length] for at in range(len(secret) - length + 1)}


@pytest.mark.parametrize("where", [-3, 0, 5, 30])
def test_a_secret_at_the_end_of_what_is_kept_is_not_cut_in_half(where: int) -> None:
    """Output that is truncated, and the excerpt of a failure."""
    secret = planted()
    before = 1000 - where - len(secret.encode()) // 2

    @on_loop
    async def run() -> None:
        expression = f"'x' * {before} + os.environ['S'] + 'y' * 5000"
        code = f"import os,sys; sys.stdout.write({expression}); sys.exit(int(sys.argv[1]))"
        for status in ("0", "1"):
            arguments = {"argv": [sys.executable, "-c", code, status], "env": {"S": ""}, "max_output": 1000}
            outcome = await outcome_with(secret, "shell", arguments, "env", "S")
            assert not [part for part in parts_of(secret) if part in str(outcome)]

    run()


@on_loop
async def test_a_secret_in_output_that_is_not_text_is_hidden_before_it_is_encoded() -> None:
    secret = planted()
    code = "import os,sys; sys.stdout.buffer.write(bytes([255, 0]) + os.environ['S'].encode() + bytes([255]))"
    arguments = {"argv": [sys.executable, "-c", code], "env": {"S": ""}}
    result = value_of(await outcome_with(secret, "shell", arguments, "env", "S"))

    assert result["stdout_encoding"] == "base64"
    assert base64.b64decode(result["stdout"]) == b"\xff\x00[redacted]\xff"


@on_loop
async def test_the_last_words_of_a_process_do_not_tell_it() -> None:
    secret = planted()
    code = "import os; os.write(1, ('z' * 1990 + s + 'z' * 1995).encode()); os._exit(3)"
    outcome = await outcome_with(secret, "playbook.python", {"code": code, "names": {"s": ""}}, "names", "s")

    assert not [part for part in parts_of(secret) if part in str(outcome)]
    assert details_of(outcome)["exit_code"] == 3 and "zzz" in details_of(outcome)["output"]


@on_loop
async def test_what_the_document_names_is_hidden_before_any_task_has_used_it() -> None:
    """After a restart an echo of what an earlier process has used is hidden as well."""
    secret = planted()
    assignment = msgspec.structs.replace(task("echo", {"value": f"found {secret}"}), secrets=("S",))
    async with at_work(resolve_secret={"S": secret}.get) as worker:
        assert value_of(await worker.run(assignment, Ledger())) == "found [redacted]"
