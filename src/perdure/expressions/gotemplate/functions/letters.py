"""Upper and lower case of single characters, as in Go: a character stays one character (`ß` has no upper case)."""

_SMALL = {"\u0130": "i"}  # the only character whose lower case has two characters


def to_upper(character: str) -> str:
    for capital in (character.upper(), character.title()):
        if len(capital) == 1:
            return capital
    return character


def to_lower(character: str) -> str:
    return _SMALL.get(character) or character.lower()


def to_title(character: str) -> str:
    capital = character.title()
    return capital if len(capital) == 1 else to_upper(character)


def upper(text: str) -> str:
    return text.upper() if text.isascii() else "".join(map(to_upper, text))


def lower(text: str) -> str:
    return text.lower() if text.isascii() else "".join(map(to_lower, text))
