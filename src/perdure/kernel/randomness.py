"""Random numbers that can be repeated: from the run's recorded seed, a site's path and a counter."""

from hashlib import blake2b

_SCALE = 1 / (1 << 53)


def draw(seed: int, path: str, counter: int) -> float:
    """A number in [0, 1), the same for the same arguments on every machine and in every version."""
    text = f"{seed}\x1f{path}\x1f{counter}".encode()
    number = int.from_bytes(blake2b(text, digest_size=8).digest(), "big")
    return (number >> 11) * _SCALE


def child_seed(seed: int, child: int) -> int:
    return int.from_bytes(blake2b(f"{seed}\x1f{child}".encode(), digest_size=8).digest(), "big") >> 1
