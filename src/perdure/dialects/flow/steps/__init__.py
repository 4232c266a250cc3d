"""The seven actions, one file each. A new one is a file here and a line in this table."""

from perdure.dialects.flow.steps import call, gather, match, pass_, raise_, return_, sleep
from perdure.dialects.flow.steps.protocol import Action

ACTIONS: dict[str, Action] = {
    action.name: action
    for action in (
        call.ACTION,
        gather.ACTION,
        match.ACTION,
        pass_.ACTION,
        sleep.ACTION,
        return_.ACTION,
        raise_.ACTION,
    )
}
