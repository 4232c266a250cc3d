"""Short ways to write Flows in tests."""

from typing import Any

from perdure.dialects.flow.document.flows import FLOW_SCHEMA

MOCK = "mwl:provider.call/mwl/mock/v1"

Json = Any


def flow(steps: dict[str, Json], **members: Json) -> dict[str, Json]:
    """A root Flow whose entrypoint is its first Step."""
    return {"$schema": FLOW_SCHEMA, **inner(steps, **members)}


def inner(steps: dict[str, Json], **members: Json) -> dict[str, Json]:
    return {"entrypoint": next(iter(steps)), "steps": steps, **members}


def call(target: dict[str, Json], next: str = "done", **members: Json) -> dict[str, Json]:
    return {"action": "Call", "call": target, "next": next, **members}


def mock(**arguments: Json) -> dict[str, Json]:
    return {"provider": MOCK, "with": arguments}


def task(name: str, **arguments: Json) -> dict[str, Json]:
    return {"provider": f"mwl:provider.call/perdure/{name}/v1", "with": arguments}


def middleware(name: str, **phases: Json) -> dict[str, Json]:
    return {"provider": f"mwl:provider.middleware/mwl/{name}/v1", **phases}


def timeout(duration: str, **phases: Json) -> dict[str, Json]:
    return middleware("timeout", **{"onEntry": {"with": {"duration": duration}}, **phases})


def retry(attempts: int, *codes: str, backoff: Json = None, **phases: Json) -> dict[str, Json]:
    policy: dict[str, Json] = {"match": {"codes": list(codes) or ["*"]}, "attempts": attempts}
    if backoff is not None:
        policy["backoff"] = backoff
    return middleware("retry", **{"onEntry": {"with": {"policies": [policy]}}, **phases})


def cleanup(target: dict[str, Json], *stack: dict[str, Json], **always: Json) -> dict[str, Json]:
    return middleware("finally", onAlways={"with": {"call": target, "middleware": list(stack)}, **always})


def returns(value: Json = "{{ step.input }}") -> dict[str, Json]:
    return {"action": "Return", "value": value}


def codes(envelope: dict[str, Json] | None) -> list[str]:
    """The codes down a failure's chain."""
    results = []
    while envelope is not None:
        results.append(envelope["code"])
        envelope = envelope.get("previous")
    return results
