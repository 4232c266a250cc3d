"""What the harness has to know of a peer before it is installed. Standard library only."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Peer:
    title: str
    packages: tuple[str, ...]  # from the Python registry, into an environment of its own
    npm: tuple[str, ...] = ()  # beside them, where a peer ships its server so
    settings: str = ""  # how it is set up, for the page
    variants: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By workload: settings that are all tried in the first round. The best goes on; a peer is shown at its best."""
    only: tuple[str, ...] = ()
    """The workloads that it is measured in; none said: all."""
    share: float = 1.0
    """Of the sizes of each workload: a rate can be told from less, and a whole run must end."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """By workload: why the peer has no such thing."""
