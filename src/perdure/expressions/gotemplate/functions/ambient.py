"""The functions whose result is not in the data: the time and random numbers (STY-202).

They are absent where templates must be repeatable.
"""

from string import ascii_letters, digits

from perdure.expressions.errors import EvaluationFault
from perdure.expressions.gotemplate.frame import Ambient, Frame
from perdure.expressions.gotemplate.functions.library import INTEGER, Function, takes_frame
from perdure.expressions.gotemplate.instants import GoTime

_PRINTABLE = "".join(map(chr, range(32, 127)))


def _ambient(frame: Frame) -> Ambient:
    if frame.ambient is None:
        raise EvaluationFault("time and randomness are not available here")
    return frame.ambient


def random_integer(frame: Frame, low: int, high: int) -> int:
    """From `low` up to, not including, `high`."""
    if high <= low:
        raise EvaluationFault(f"there is no integer from {low} up to {high}")
    return low + int(_ambient(frame).draw() * (high - low))


def random_uuid(frame: Frame) -> str:
    draw = _ambient(frame).draw
    octets = bytearray(int(draw() * 256) for _ in range(16))
    octets[6] = octets[6] & 0x0F | 0x40
    octets[8] = octets[8] & 0x3F | 0x80
    text = octets.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _random_text(alphabet: str) -> Function:
    def make(frame: Frame, count: int) -> str:
        draw = _ambient(frame).draw
        if count < 0:
            raise EvaluationFault("the length of a text cannot be negative")
        frame.budget.charge_elements(count)
        return "".join(alphabet[int(draw() * len(alphabet))] for _ in range(count))

    return takes_frame(make, INTEGER)


FUNCTIONS = {
    "now": takes_frame(lambda frame: GoTime.of(_ambient(frame).now)),
    "randAlpha": _random_text(ascii_letters),
    "randAlphaNum": _random_text(ascii_letters + digits),
    "randAscii": _random_text(_PRINTABLE),
    "randInt": takes_frame(random_integer, INTEGER, INTEGER),
    "randNumeric": _random_text(digits),
    "uuidv4": takes_frame(random_uuid),
}
