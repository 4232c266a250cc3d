"""How each event changes the state: total functions, constant time in the number of steps."""

from perdure.dialects.story.state.folding import arrivals, attempts, maps, runs, signals, steps, topologies
from perdure.kernel.state_changes import ChangeTable

evolve = ChangeTable(
    {
        **arrivals.CHANGES,
        **attempts.CHANGES,
        **maps.CHANGES,
        **steps.CHANGES,
        **signals.CHANGES,
        **runs.CHANGES,
        **topologies.CHANGES,
    }
)
