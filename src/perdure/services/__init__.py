"""What languages bring besides their pure part: providers, triggers, a keychain, aliases of commands.

Shared packages do not import the services of one language. They use a protocol whose implementation wiring passes in,
or the lists below, which name modules without importing them.
"""

from collections.abc import Callable, Mapping
from pkgutil import resolve_name
from typing import Any

from perdure.services.playbook import PROVIDERS as _PLAYBOOK
from perdure.services.provider_lists import ProviderList
from perdure.services.story import PROVIDERS as _STORY

COMMAND_ALIASES = ("perdure.services.playbook.noetl_aliases",)
"""Modules with further spellings of commands: each has `translate_arguments` and `HELP`, a paragraph about them."""

PROVIDERS: tuple[ProviderList, ...] = (_PLAYBOOK, _STORY)
"""What the tasks of each language may call besides the providers of all."""

BACKGROUND_SERVICES = ("perdure.services.background:BackgroundService",)
"""What a server runs besides its engine: classes with `run`, created with the engine and `say`."""

SCHEDULE_SOURCE = "perdure.services.story.triggers.impulse_schedules:ImpulseSchedules"
"""The class of what has schedules in the catalog (`ScheduleSource`), created with a client."""

ALERT_START = "perdure.services.story.triggers.requests:start_alert"
"""The function that requests an alert about a watched run (`StartAlert`), with a client before its arguments."""

METRICS = ("perdure.services.story.streams.metrics:live_metrics",)
"""Functions that give figures of this process: of each its name, kind, help text and series (suffix, labels, value)."""

TOTALS = (
    "perdure.services.story.streams.metrics:total_metrics",
    "perdure.services.story.triggers.impulse_throttle:throttle_metrics",
)
"""The same without the names of runs, steps and namespaces, over all of them."""

EVENT_METRICS = {"story": "perdure.services.story.run_metrics:StoryRunMetrics"}
"""Classes that count events of runs of a language, created with the clock: `listen`, and `metrics` as above."""

METRIC_ALIASES = {
    "story": {
        "perdure_runs_ended_total": "bobrapet_storyruns_total",
        "perdure_run_seconds": "bobrapet_storyrun_duration_seconds",
        "perdure_tasks_ended_total": "bobrapet_stepruns_total",
    }
}
"""Names under which users of a language know figures of its runs (STY-260)."""

PACKET_RECORDINGS = "perdure.services.story.streams.recording:recorded_packets"
"""The function that reads recorded packets of a run (a list), given what is shown of it."""

LATEST_PACKETS = "perdure.services.story.streams.recording:latest_packets"
"""The same for the latest ones, of which there are at most so many: the latest first."""

REPLAYER = "perdure.services.scenarios.replay"
"""The module that replays recorded runs with another document (`Replayer`)."""

SCENARIO_WRITER = "perdure.services.scenarios.recorded_scenario"
"""The module that writes a recorded run as a scenario (`write_scenario`)."""

SCENARIO_SUFFIXES = (".test.yaml", ".test.yml", ".test.json")
"""How the names of files of scenarios end; they are no documents."""

SCENARIO_SUITE = "perdure.services.scenarios.suite"
"""The module that finds, reads and plays scenarios of documents (`find_files`, `read_files`, `play_files`)."""

SIMULATION = "perdure.services.scenarios.simulating"
"""The module that makes a document ready for simulation (`prepare`)."""


def language_metrics(now: Callable[[], int]) -> tuple[Mapping[str, Mapping[str, str]], dict[str, Any], list[Any]]:
    """The aliases, by language what counts its events, and the functions of `TOTALS`."""
    counters = {language: resolve_name(name)(now) for language, name in EVENT_METRICS.items()}
    return METRIC_ALIASES, counters, [resolve_name(name) for name in TOTALS]
