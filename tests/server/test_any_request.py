"""Requests of every kind, made from the server's own description: no 500, and no answer that it does not describe
(SRV-003, SRV-011).
"""

import os
from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings

from tests.sampling import Sample
from tests.server.serving import RETURNS, WAITS, Server

EXAMPLES = 50 if os.environ.get("PERDURE_TEST_SEED") == "all" else 3  # of each operation; more in `make deep`
COMMITS = 4  # at one in so many of which an operation is tried
STREAMS = {"/api/v1/events"}  # they do not end by themselves


def _operations(server: Server, description: Any) -> Iterator[Any]:
    import schemathesis  # here and below: every worker would pay for it
    from schemathesis.core.result import Ok

    schema = schemathesis.openapi.from_dict(description)
    schema.config.update(base_url=server.url)
    for operation in schema.get_all_operations():
        assert isinstance(operation, Ok), operation
        if operation.ok().path not in STREAMS:
            yield operation.ok()


def _calm(part: Any) -> Any:
    """Without long waits, which the description allows."""
    if isinstance(part, dict):
        return {name: 0 if name == "wait" else value for name, value in part.items()}
    return part


class Asking:
    """Sends requests, and notes what is wrong with the answers."""

    def __init__(self, server: Server) -> None:
        from schemathesis.specs.openapi import checks

        self._checks = [
            checks.status_code_conformance,
            checks.content_type_conformance,
            checks.response_schema_conformance,
        ]
        self.runs = [server.admin.start(RETURNS), server.admin.start(WAITS)]
        self.token = {"Authorization": f"Bearer {server.admin.token}"}
        self.wrong: list[str] = []
        self.count = 0

    def try_operation(self, operation: Any) -> None:
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def ask(case: Any) -> None:
            self.ask(case, operation.label)

        ask()

    def ask(self, case: Any, label: str) -> None:
        self.count += 1
        case.query, case.body = _calm(case.query), _calm(case.body)
        if "id" in (case.path_parameters or {}) and self.count % 2:
            case.path_parameters["id"] = self.runs[self.count // 2 % 2]
        reply = case.call(headers=self.token, timeout=300)
        if reply.status_code == 500:
            self.wrong.append(f"{label}: 500 for {reply.request.url} {str(reply.request.body)[:300]}")
            return
        try:
            case.validate_response(reply, checks=self._checks)
        except AssertionError as problem:
            self.wrong.append(f"{label}: {reply.status_code} {str(problem)[:300]} {reply.text[:200]}")
        except BaseExceptionGroup as problems:
            reasons = "; ".join(str(problem)[:300] for problem in problems.exceptions)
            self.wrong.append(f"{label}: {reply.status_code} {reasons} {reply.text[:200]}")


def test_no_request_finds_a_500_or_an_answer_that_is_not_described(server: Server, sample: Sample) -> None:
    asking = Asking(server)
    operations = sample.take(list(_operations(server, server.admin("GET", "/openapi.json").json)), COMMITS)
    for operation in operations:
        asking.try_operation(operation)
    assert asking.count >= len(operations) >= 10
    assert asking.wrong == [], "\n\n".join(asking.wrong)
    assert server.admin("GET", "/api/v1/whoami").status == 200


def test_an_answer_that_is_not_described_is_noticed(server: Server) -> None:
    """So that the test above can fail."""
    description = server.admin("GET", "/openapi.json").json
    description["paths"] = {"/version": description["paths"]["/version"]}
    del description["paths"]["/version"]["get"]["responses"]["200"]
    asking = Asking(server)
    for operation in _operations(server, description):
        asking.try_operation(operation)
    assert asking.wrong and asking.wrong[0].startswith("GET /version: 200 ")
