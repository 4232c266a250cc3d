"""How much a text may ask of its reader."""

import msgspec


class Limits(msgspec.Struct, frozen=True):
    """Generous for people, tight for attackers."""

    size: int = 4_194_304  # bytes of text
    depth: int = 100  # lists and mappings inside each other
    nodes: int = 1_000_000  # keys and values once every alias is written out
    text: int = 33_554_432  # characters of them, likewise
    documents: int = 1_000  # in one text
    problems: int = 100  # told at once; then reading ends


DEFAULT_LIMITS = Limits()
