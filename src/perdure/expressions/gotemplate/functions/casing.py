"""Words joined in other ways: snake_case, kebab-case, CamelCase."""

import re

from perdure.expressions.gotemplate.functions.library import TEXT, takes

_WORD = re.compile(r"[^\W\d_]*[a-z]|.")


def camel_case(text: str) -> str:
    return text


FUNCTIONS = {
    "camelcase": takes(camel_case, TEXT),
}
