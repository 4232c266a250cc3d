"""What Story brings: Engrams that come with Perdure, how steps execute, triggers, and the operator's settings."""

from typing import TYPE_CHECKING, Any

from perdure.services.provider_lists import ProviderList

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SHIPPED_ENGRAMS = {
    "engram:echo@1.0.0": "perdure.services.story.engrams.shipped.echo",
    "engram:http-request@1.0.0": "perdure.services.story.engrams.shipped.http_request",
    "engram:json-filter@1.0.0": "perdure.services.story.engrams.shipped.json_filter",
    "engram:materialize@1.0.0": "perdure.services.story.engrams.shipped.materialize",
}
"""The same as in their package, without importing it."""

PROVIDERS = ProviderList(
    "story",
    prefixes=("engram.", "engram:"),
    modules={
        "engram.command": "perdure.services.story.engrams.command",
        "engram.container": "perdure.services.story.engrams.image",
        "engram.http": "perdure.services.story.engrams.endpoint",
        "engram.stream": "perdure.services.story.streams.bring_task",
        "engram.topology": "perdure.services.story.streams.topology_task",
        **SHIPPED_ENGRAMS,
    },
    code=frozenset({"engram.command", "engram.container"}),
    replaceable=frozenset(name for name in SHIPPED_ENGRAMS if not name.startswith("engram:materialize@")),
)
"""`materialize` belongs to the engine: it is not replaceable."""


def recordings_of(namespace: str, run: str) -> "Path":
    """Where recorded packets of a run are."""
    import os
    from pathlib import Path

    return Path(os.environ.get("PERDURE_STORAGE_DIR", "")) / "recordings" / namespace / run


RECORDED_RUNS = ".runs"
"""The folder with a file for each recorded run: its name is the run's id, and it says whose recordings those are."""


def remove_recordings(runs: "Iterable[str]") -> None:
    """Remove recorded packets of runs that were removed."""
    import os
    from shutil import rmtree

    if not os.environ.get("PERDURE_STORAGE_DIR"):
        return
    recorded = recordings_of(RECORDED_RUNS, "")
    if not recorded.is_dir():
        return
    for run in runs:
        note = recorded / run
        if "/" not in run and note.is_file():
            namespace, _, name = note.read_text(encoding="utf-8").partition("/")
            if namespace and name and "/" not in name and ".." not in (namespace, name):
                rmtree(recordings_of(namespace, name), ignore_errors=True)
            note.unlink(missing_ok=True)


def read_settings(setting: str) -> dict[str, Any]:
    """What an operator has set for Stories: a JSON object, or the path of a file that holds one."""
    if not setting.strip():
        return {}
    from pathlib import Path

    from perdure.dialects.story.plan.settings import BadSetting, Settings
    from perdure.documents import UnreadableText, read_document
    from perdure.kernel.errors import PerdureError

    try:
        text = setting.encode() if setting.lstrip().startswith("{") else Path(setting).read_bytes()
        settings = read_document(text).data
        if not isinstance(settings, dict):
            raise BadSetting("settings are an object: key and value")
        Settings.read(settings)
    except (BadSetting, UnreadableText, OSError) as error:
        raise PerdureError(
            f"PERDURE_STORY_SETTINGS: {error}", hint="The keys are listed in docs/reference/story.md."
        ) from None
    return settings
