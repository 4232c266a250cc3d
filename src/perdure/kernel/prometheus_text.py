"""Figures as text for Prometheus (exposition format 0.0.4)."""

from collections.abc import Iterable

Labels = tuple[tuple[str, str], ...]
Sample = tuple[str, Labels, float]
"""What follows the name of the metric (`_bucket`), labels, value."""


def metric_lines(name: str, kind: str, help_text: str, samples: Iterable[Sample]) -> list[str]:
    """One metric with all its series."""
    lines = [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]
    for suffix, labels, value in samples:
        shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
        lines.append(f"{name}{suffix}{f'{{{shown}}}' if shown else ''} {value}")
    return lines


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
