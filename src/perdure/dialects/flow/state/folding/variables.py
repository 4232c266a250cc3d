"""Variables: bound together, and remembered by the entries that may have to restore them."""

from perdure.dialects.flow.state.body import Body, Frame, MiddlewareScope
from perdure.dialects.flow.state.events import Bindings
from perdure.dialects.flow.state.values import Cell
from perdure.kernel.json_values.values import Payload


def cells_of(body: Body, frame: Frame, bound: Bindings) -> dict[str, Cell]:
    """All are looked up before any is bound: a block reads the state from before itself (MWL-181)."""
    return {name: body.cell(frame, carried) for name, carried in bound.items()}


def bind(frame: Frame, cells: dict[str, Cell]) -> None:
    for name, cell in cells.items():
        for scope in frame.stack:
            if isinstance(scope, MiddlewareScope) and scope.restores:
                scope.undo.setdefault(name, frame.vars.cells.get(name))
        frame.vars.bind(name, cell)


def restore_variables(frame: Frame, entry: MiddlewareScope) -> None:
    for name, cell in entry.undo.items():
        frame.vars.bind(name, cell)
    entry.undo = {}


def optional_cell(payload: Payload | None) -> Cell | None:
    return None if payload is None else Cell(payload)
