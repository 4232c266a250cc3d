"""Figures as text for Prometheus (exposition format 0.0.4)."""

from collections.abc import Iterable

Labels = tuple[tuple[str, str], ...]
Sample = tuple[str, Labels, float]
"""What follows the name of the metric (`_bucket`), labels, value."""
Metric = tuple[str, str, str, list[Sample]]
"""Name, kind, help text, all series."""


def metrics_text(metrics: Iterable[Metric]) -> str:
    return "".join(f"{line}\n" for metric in metrics for line in _lines(*metric))


def _lines(name: str, kind: str, help_text: str, samples: list[Sample]) -> list[str]:
    lines = [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]
    for suffix, labels, value in samples:
        shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
        lines.append(f"{name}{suffix}{f'{{{shown}}}' if shown else ''} {value}")
    return lines


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
