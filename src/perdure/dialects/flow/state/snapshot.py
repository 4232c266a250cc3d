"""How values stand in a snapshot."""

from typing import Any

from perdure.dialects.flow.state.failure_chains import Chain
from perdure.dialects.flow.state.values import Cell, Grown, Vars
from perdure.kernel.growth import Buffer
from perdure.kernel.values import Payload, Ref


def encode_hook(item: Any) -> Any:
    match item:
        case Grown():
            return {"pieces": item.buffer.frozen(item.count)}
        case Chain():
            return {"links": [link.payload for link in item.links], "is_cut": item.is_cut}
        case Cell():
            return item.payload
        case Vars():
            return item.cells
    raise TypeError(f"{type(item).__name__} is no part of a snapshot")


def decode_hook(kind: type, item: Any) -> Any:
    if kind is Cell:
        return _cell(item)
    if kind is Vars:
        return Vars({name: _cell(one) for name, one in item.items()})
    raise TypeError(f"{kind.__name__} is no part of a snapshot")


def _cell(item: Any) -> Cell:
    match item:
        case {"pieces": pieces}:
            return Grown(Buffer([_payload(piece) for piece in pieces]), len(pieces))
        case {"links": links, "is_cut": is_cut}:
            return Chain(tuple(Cell(_payload(link)) for link in links), is_cut)
    return Cell(_payload(item))


def _payload(item: Any) -> Payload:
    return item if isinstance(item, bytes) else Ref(*item)
