"""Names and uids of StepRuns (STY-014)."""

from perdure.dialects.story.resources.names import compose
from perdure.dialects.story.state.body import Body
from perdure.kernel.json_values.values import RunId


def step_run_name(body: Body, step: str) -> str:
    if body.plan.is_hybrid:  # the run of a packet is named like its only step: by step and packet (STR-067)
        return body.name
    parent = body.plan.parents.get(step)
    return compose(body.name, step) if parent is None else compose(body.name, parent, step)


def step_run_uid(run: RunId, life: int, step: str) -> str:
    """The uid of a StepRun: new with every life of a step, so that effects of an earlier life are not taken for its
    own (STY-172).
    """
    return f"{run}/{life}/{step}"
