"""A secret is hidden whole: not a line of it, nor another secret inside of it, with the rest left to be read."""

import csv
import io
import json
import secrets

import pytest

from perdure.kernel.secrets.secret_masking import Mask


def written(secret: str) -> dict[str, str]:
    table = io.StringIO()
    csv.writer(table).writerow(["before", secret])
    return {
        "plain": secret,
        "Python": repr(secret),
        "bytes": repr(secret.encode()),
        "escaped": secret.encode("unicode_escape").decode(),
        "JSON": json.dumps(secret),
        "JSON in JSON": json.dumps({"in": json.dumps({"x": secret})}),
        "table": table.getvalue(),
    }


@pytest.mark.parametrize("way", written("x"))
def test_a_secret_with_lines_is_hidden_with_its_short_ones(way: str) -> None:
    first, second = secrets.token_hex(5), secrets.token_hex(12)
    secret = f'{first}"é\n{second}\n'
    mask = Mask()
    mask.add(secret)

    hidden = mask.text(written(secret)[way])

    assert first not in hidden and second not in hidden


@pytest.mark.parametrize("way", written("x"))
@pytest.mark.parametrize("is_outer_first", [True, False])
def test_a_secret_inside_of_another_leaves_nothing_of_it(way: str, is_outer_first: bool) -> None:
    inner, rest = secrets.token_hex(6), secrets.token_hex(6)
    outer = f'{rest}"/{inner}é'
    mask = Mask()
    for secret in [outer, inner] if is_outer_first else [inner, outer]:
        mask.add(secret)

    hidden = mask.text(written(outer)[way])

    assert inner not in hidden and rest not in hidden


def test_a_line_alone_is_hidden_also_as_json_writes_it() -> None:
    line = f'{secrets.token_hex(6)}"{secrets.token_hex(6)}'
    mask = Mask()
    mask.add(f"short\n{line}\n")

    assert mask.text(json.dumps([line])) == '["[redacted]"]'
    assert mask.json(json.dumps([line]).encode()) == b'["[redacted]"]'


def test_a_number_is_hidden_as_json_may_write_it() -> None:
    pin = 100_000 + secrets.randbelow(900_000)
    mask = Mask()
    mask.add(str(pin))

    assert mask.data([pin, float(pin), str(pin), pin + 0.5]) == ["[redacted]"] * 3 + [pin + 0.5]
