"""How long an operator keeps ended runs: `[[retention]]` of the settings file, or `PERDURE_RETENTION`."""

import os
from collections.abc import Mapping
from typing import Any

from perdure.engine.client import Client
from perdure.engine.runs.retention import RetentionRule
from perdure.kernel.outcomes import OPEN_STATUSES, Status
from perdure.providers.policy import BadPolicy, read_retention
from perdure.views.access import NoParameters, Question, Scope
from perdure.views.times import read_span

FOREVER = "forever"
HINT = "docs/guide/schedules.md describes the rules."


def read_rules(environment: Mapping[str, str]) -> list[RetentionRule]:
    """The rules in their order; raises `BadPolicy`."""
    final = [status.value for status in Status if status not in OPEN_STATUSES]
    rules = []
    for rule in read_retention(environment):
        statuses = rule.status if isinstance(rule.status, list) else [rule.status] if rule.status else []
        for wrong in (status for status in statuses if status not in final):
            raise BadPolicy(
                f"retention: {wrong!r} is not how a run ends (expected one of {', '.join(final)})", hint=HINT
            )
        try:
            keep = None if rule.keep == FOREVER else read_span(rule.keep)
        except ValueError as error:
            raise BadPolicy(f"retention: keep: {error}, nor {FOREVER!r}", hint=HINT) from None
        rules.append(RetentionRule(keep, rule.language, rule.document, rule.namespace, tuple(map(Status, statuses))))
    return rules


async def read_rules_in_force(client: Client, scope: Scope, query: NoParameters) -> dict[str, Any]:
    """The rules of this process, in their order: the first that fits a run counts; a member that is null fits all."""
    items = [
        {
            "keep": rule.keep,
            "language": rule.language or None,
            "document": rule.document or None,
            "namespace": rule.namespace or None,
            "status": rule.status or None,
        }
        for rule in read_retention(os.environ)
    ]
    return {"items": items}


RETENTION = Question(
    "list_retention_rules",
    "/retention",
    "how long ended runs are kept",
    NoParameters,
    Any,
    read_rules_in_force,
    needs_all_namespaces=True,
    role="admin",
)
