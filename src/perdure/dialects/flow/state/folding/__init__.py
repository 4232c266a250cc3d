"""How events change the state of a Flow. Total, without decisions, in constant time; nothing is evaluated here."""

from perdure.dialects.flow.state.folding import arrivals, calls, checkpoints, entries, frames, steps
from perdure.kernel.state_changes import ChangeTable

evolve = ChangeTable(
    {
        **arrivals.CHANGES,
        **frames.CHANGES,
        **steps.CHANGES,
        **entries.CHANGES,
        **calls.CHANGES,
        **checkpoints.CHANGES,
    }
)
