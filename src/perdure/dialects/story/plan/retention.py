"""How long a run is kept after its end (STY-189, STY-190).

ended ──child TTL──▶ StepRuns and sub-runs are removed ──retention──▶ the record and its request are removed
"""

from perdure.dialects.story.plan.program import Program, object_at
from perdure.dialects.story.resources.labels import REQUEST_NAME
from perdure.kernel.documents.lookups import ResourceKey
from perdure.kernel.execution import Execution
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND
from perdure.kernel.outcomes import Retention


def retention(program: Program) -> Retention:
    """A negative TTL keeps the children; retention 0 keeps the record forever, a negative one removes it at once."""
    execution, settings = object_at(program.policy, "execution"), program.settings
    if program.is_batch:
        ttl = object_at(execution, "job").get("ttlSecondsAfterFinished", settings.job_ttl_seconds)
    else:
        ttl = object_at(execution, "realtime").get("ttlSecondsAfterFinished", settings.streaming_ttl_seconds)
    seconds = object_at(execution, "job").get("storyRunRetentionSeconds", settings.retention_seconds)
    children = None if ttl < 0 else ttl * SECOND
    if seconds < 0:
        return Retention(children, children, is_brief=True)
    return Retention(children, None if seconds == 0 else max(seconds * SECOND, children or 0))


def goes_with(execution: Execution) -> list[ResourceKey]:
    """The request that started the run, which is removed with it."""
    notes = jsontext.decode(execution.state.options).get("annotations")
    name = notes.get(REQUEST_NAME) if isinstance(notes, dict) else None
    return [ResourceKey("StoryTrigger", execution.body.namespace, name)] if name else []
