"""`python -m tests.fuzz NAME [SECONDS] [SEED]`: feeds a parser with damaged texts until something breaks.

With atheris installed its coverage leads the way; without it texts of the corpus are damaged at random.
"""

import random
import sys
import time

from tests.fuzz.targets import TARGETS, corpus, feed


def main(name: str, seconds: float = 60.0, seed: int | None = None) -> None:
    try:
        import atheris  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except ImportError:
        damage(name, seconds, random.randrange(2**32) if seed is None else seed)
        return
    atheris.instrument_all()
    atheris.Setup(
        [sys.argv[0], f"-max_total_time={int(seconds)}"], lambda data: feed(name, data.decode("utf-8", "replace"))
    )
    atheris.Fuzz()


def damage(name: str, seconds: float, seed: int) -> int:
    """Answers with how many texts were fed; a failure shows the text."""
    sys.stdout.write(f"{name}: seed {seed}\n")
    draw = random.Random(seed)
    texts = [*corpus(name), ""]
    end, fed = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        text = draw.choice(texts)[:5_000]
        for _ in range(draw.randint(1, 8)):
            at = draw.randint(0, len(text))
            piece = draw.choice(
                [*TARGETS[name].words, chr(draw.randrange(0xD800)), text[at : at + draw.randint(1, 50)]]
            )
            text = text[:at] + piece * draw.choice((1, 1, 1, 50)) + text[at + draw.choice((0, 0, 1, 9)) :]
        try:
            feed(name, text)
        except BaseException:
            sys.stdout.write(f"{name} broke on {text!r}\n")
            raise
        fed += 1
    return fed


if __name__ == "__main__":
    arguments = sys.argv[2:]
    main(sys.argv[1], float(arguments[0]) if arguments else 60.0, int(arguments[1]) if len(arguments) > 1 else None)
