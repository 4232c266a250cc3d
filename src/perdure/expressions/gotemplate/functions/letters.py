"""Capital and small letters one by one, as Go has them: a letter stays one letter (`ß` has no capital)."""

_SMALL = {"\u0130": "i"}  # the only letter whose small form is written with two


def to_upper(letter: str) -> str:
    for capital in (letter.upper(), letter.title()):
        if len(capital) == 1:
            return capital
    return letter


def to_lower(letter: str) -> str:
    return _SMALL.get(letter) or letter.lower()


def to_title(letter: str) -> str:
    capital = letter.title()
    return capital if len(capital) == 1 else to_upper(letter)


def upper(text: str) -> str:
    return text.upper() if text.isascii() else "".join(map(to_upper, text))


def lower(text: str) -> str:
    return text.lower() if text.isascii() else "".join(map(to_lower, text))
