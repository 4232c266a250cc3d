"""The whole run: peers prepared, workloads interleaved, everything written to one file as it comes."""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from bench import curves, environments, machine
from bench.harness import Failure, Harness, Subject, ours, peer
from bench.registry import BY_KIND, KINDS, LANGUAGES, ON_ONE_MACHINE, ON_POSTGRES
from bench.summary import is_on_postgres
from bench.workloads import SYNCS, WORKLOADS, Metric, Workload

Results = dict[str, Any]
OURS = "thread"
"""Perdure is compared with plain functions, as users write them; only peers are shown at their best setting."""


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def languages(
    names: Sequence[str] = LANGUAGES, stores: Sequence[str] = ("sqlite",), home: Path = Path()
) -> list[Subject]:
    titles = {name: import_module(f"bench.languages.{name}").LANGUAGE.title for name in names}
    return [ours(name, title, store, home) for store in stores for name, title in titles.items()]


class Run:
    def __init__(self, harness: Harness, output: Path, *, quick: bool) -> None:
        self.harness = harness
        self.output = output
        self.subjects: list[Subject] = []
        self.only: dict[str, tuple[str, ...]] = {}  # by subject: the workloads that it is measured in
        self.settings: dict[tuple[str, str], list[str]] = {}  # by subject and workload: what is still to be tried
        self.results: Results = {
            "began": datetime.now(UTC).isoformat(timespec="seconds"),
            "quick": quick,
            "machine": machine.facts(harness.scratch),
            "sizes": asdict(harness.sizes),
            "subjects": {},
            "unavailable": {},
            "chosen": {},
            "samples": [],
            "kinds": [],
            "split": {},
            "limits": [],
            "syncs": {},
            "curves": {},
            "profile": {},
        }
        self._began = time.monotonic()

    @property
    def partial(self) -> Path:
        """What there is so far. Figures of a run before stay until this one is over."""
        return self.output.with_suffix(".partial.json")

    def save(self) -> None:
        self.results["seconds"] = round(time.monotonic() - self._began)
        self.output.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self.output.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(self.results, indent=1) + "\n")
        unfinished.replace(self.partial)

    def finish(self) -> None:
        self.save()
        self.partial.replace(self.output)

    def add_languages(self, names: Sequence[str], stores: Sequence[str], under: Path) -> None:
        home = under / "perdure"
        home.mkdir(parents=True, exist_ok=True)
        for subject in languages(names, stores, home):
            self.subjects.append(subject)
            self.only[subject.name] = ON_POSTGRES if is_on_postgres(subject.name) else ON_ONE_MACHINE
            self.results["subjects"][subject.name] = {"title": subject.title, "ours": True}

    def add_peers(self, names: Sequence[str], under: Path) -> None:
        """One that cannot be installed is reported, never left out in silence."""
        for name in names:
            say(f"preparing {name}")
            described = environments.peer_named(name)
            try:
                home = environments.prepare(name, under)
                versions = environments.versions(home, described)
            except (environments.CannotInstall, OSError) as error:
                say(f"{name} CANNOT BE INSTALLED: {error}")
                self.results["unavailable"][name] = {"title": described.title, "reason": str(error)}
                continue
            self.subjects.append(peer(name, described.title, home, described.share))
            self.only[name] = tuple(set(described.only or ON_ONE_MACHINE) & set(ON_ONE_MACHINE))
            for workload, variants in described.variants.items():
                self.settings[(name, workload)] = list(variants)
            self.results["subjects"][name] = {
                "title": described.title,
                "ours": False,
                "settings": described.settings,
                "versions": versions,
            }

    def measure(self, names: Sequence[str], rounds: int) -> None:
        """Round after round, workload after workload, each time beginning with another subject."""
        chosen = [workload for workload in WORKLOADS if workload.name in names]
        for number in range(1, rounds + 1):
            self._measure_limits(number)
            for workload in chosen:
                turn = (number - 1) % len(self.subjects)
                for subject in [*self.subjects[turn:], *self.subjects[:turn]]:
                    if workload.name in self.only[subject.name]:
                        self._measure_one(number, workload, subject)
                        self._measure_kinds(number, workload, subject)
                self.save()

    def _measure_one(self, number: int, workload: Workload, subject: Subject) -> None:
        key = (subject.name, workload.name)
        variants = self.settings.get(key, [OURS if subject.is_ours else ""])
        best: tuple[float, str] | None = None
        for variant in variants:
            sample: dict[str, Any] = {
                "round": number,
                "workload": workload.name,
                "subject": subject.name,
                "variant": variant,
                "load": machine.load(),
            }
            try:
                sample["figures"] = self.harness.measure(subject, workload.name, variant)
                rank = _rank(workload.metrics[0], sample["figures"])
                best = (rank, variant) if best is None else max(best, (rank, variant))
            except Failure as failure:
                sample["error"] = str(failure)
            figures = {name: round(value, 3) for name, value in sample.get("figures", {}).items()}
            say(f"{number} {workload.name} {subject.title} {variant}: {figures or 'FAILED: ' + sample['error']}")
            self.results["samples"].append(sample)
        if best is not None and len(variants) > 1:
            self.settings[key] = [best[1]]
            self.results["chosen"][f"{workload.name} {subject.name}"] = best[1]

    def _measure_kinds(self, number: int, workload: Workload, subject: Subject) -> None:
        """The same with other kinds of functions. They are told, not compared."""
        if not subject.is_ours or workload.name not in BY_KIND:
            return
        for kind in [kind for kind, names in KINDS.items() if subject.name in names]:
            sample = {"round": number, "workload": workload.name, "subject": subject.name, "variant": kind}
            try:
                figures = self.harness.measure(subject, workload.name, kind)
            except Failure as failure:
                say(f"{number} {workload.name} {subject.title} {kind}: FAILED: {failure}")
                continue
            self.results["kinds"].append({**sample, "figures": figures})
            say(f"{number} {workload.name} {subject.title} {kind}: {figures['steps_per_s']:.0f} steps/s")

    def _measure_limits(self, number: int) -> None:
        limits = self.harness.call(self.subjects[0], "bench.limits", "physical")
        if on_postgres := next((subject for subject in self.subjects if is_on_postgres(subject.name)), None):
            limits |= self.harness.call(on_postgres, "bench.limits", "physical_of_postgres")
        say(f"{number} limits: { ({name: round(value, 3) for name, value in limits.items()}) }")
        self.results["limits"].append(limits)

    def count_syncs(self) -> None:
        """Noise cannot move these: once is enough."""
        for workload in SYNCS:
            for subject in self.subjects:
                sizes = self.harness.sizes.times(subject.share)
                steps = {"w1": sizes.workflows * sizes.steps, "w4": sizes.rounds}
                variant = self.settings.get((subject.name, workload), [OURS if subject.is_ours else ""])[0]
                try:
                    syncs: Any = round(self.harness.count_syncs(subject, workload, variant) / steps[workload], 3)
                except (Failure, OSError) as error:
                    syncs = str(error)
                say(f"syncs per step, {workload} {subject.title}: {syncs}")
                self.results["syncs"].setdefault(workload, {})[subject.name] = syncs
        self.save()

    def draw_curves(self, most: int) -> None:
        mine = [subject for subject in self.subjects if subject.is_ours and not is_on_postgres(subject.name)]
        self.results["curves"] = curves.draw(self.harness, mine, most, say)
        self.save()

    def split(self) -> None:
        """Where one step of W4 goes, piece after piece."""
        for subject in self.subjects:
            if subject.is_ours and not is_on_postgres(subject.name):
                say(f"pieces of a step of W4, {subject.title}")
                self.results["split"][subject.name] = self.harness.call(subject, "bench.splitting", "split")
        self.save()

    def profile(self) -> None:
        for subject in self.subjects:
            if subject.is_ours and not is_on_postgres(subject.name):
                say(f"profile of W1, {subject.title}")
                profile = self.harness.call(subject, "bench.profiling", "profiled", "w1")
                self.results["profile"][subject.name] = profile
        self.save()


def _rank(metric: Metric, figures: dict[str, Any]) -> float:
    value: float = figures[metric.name]
    return value if metric.higher else -value
