"""How much of each workload is done. Standard library only."""

import json
from dataclasses import asdict, dataclass, replace


@dataclass(frozen=True)
class Sizes:
    workflows: int = 200  # W1, W5
    steps: int = 10  # W1, W5
    width: int = 1_000  # W2
    starts: int = 200  # W3
    rounds: int = 2_000  # W4
    parked: int = 10_000  # W7
    parking_seconds: float = 12.0  # W7: a peer that has not parked them all by then is stopped; its rate is the answer

    def times(self, share: float) -> "Sizes":
        """Workflows, widths and lengths of so much of these; a workflow keeps its steps."""
        if share == 1:
            return self
        names = ("workflows", "width", "starts", "rounds", "parked")
        return replace(self, **{name: max(10, round(getattr(self, name) * share)) for name in names})

    def dump(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, text: str) -> "Sizes":
        return cls(**json.loads(text))


FULL = Sizes()
QUICK = Sizes(workflows=50, width=200, starts=50, rounds=400, parked=2_000, parking_seconds=3.0)
