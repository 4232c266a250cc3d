"""How events change the state. Nothing is rendered or decided here, and the cost does not depend on the run's width."""

from perdure.dialects.playbook.state.folding import arrivals, executions, joins, redrives, runs, threads, tokens
from perdure.kernel.state_changes import ChangeTable

evolve = ChangeTable(
    {
        **arrivals.CHANGES,
        **tokens.CHANGES,
        **runs.CHANGES,
        **threads.CHANGES,
        **joins.CHANGES,
        **executions.CHANGES,
        **redrives.CHANGES,
    },
    counts=True,
)
