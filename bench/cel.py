"""CEL beside cel-expr-python: python bench/cel.py

Each round evaluates every case once with both engines, one after the other, on a context that was made afresh
for that evaluation; figures are medians over the rounds. What counts are the ratios: the machine may be busy.
The last two cases evaluate many times on one context, small and large: nothing is bound, so size costs nothing.
"""

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

from cel_expr_python import cel  # type: ignore[import-untyped]

from perdure.expressions.cel import compile_program
from perdure.expressions.mwl import compile_expression

CONDITION = "order.total > 100.0 && order.status == 'paid' && order.customer.tier in ['gold', 'silver']"
FILTER_MAP = "order.lines.filter(line, line.price > 10.0).map(line, line.sku)"
ROUNDS, INNER = 40, 250


def make_context(lines: int) -> dict[str, Any]:
    """About 1 KB with 13 lines, about 1 MB with 18,000."""
    order = {
        "id": "o-1234567",
        "status": "paid",
        "total": 150.25,
        "customer": {"name": "Ada Lovelace", "email": "ada@example.org", "tier": "gold", "tags": ["eu", "vip"]},
        "note": "leave at the door, ring twice " * 4,
        "lines": [{"sku": f"sku-{i:05}", "price": 4.5 + i, "quantity": 1.0 + i % 3} for i in range(lines)],
    }
    return {"order": order}


def measure(evaluate: Callable[[dict[str, Any]], Any], contexts: list[dict[str, Any]]) -> float:
    """Microseconds per evaluation; making the contexts is not counted."""
    start = time.perf_counter()
    for context in contexts:
        evaluate(context)
    return (time.perf_counter() - start) / len(contexts) * 1e6


def main() -> None:
    small, large = json.dumps(make_context(13)), json.dumps(make_context(18_000))
    environment = cel.NewEnv(variables={"order": cel.Type.DYN})
    roots = frozenset({"order"})

    def theirs(text: str) -> Callable[[dict[str, Any]], Any]:
        expression = environment.compile(text)
        return lambda context: expression.eval(data=context).plain_value()

    def ours(text: str) -> Callable[[dict[str, Any]], Any]:
        return compile_program(text, roots).evaluate

    def flow(text: str) -> Callable[[dict[str, Any]], Any]:
        return compile_expression(text, roots).evaluate

    def afresh() -> list[dict[str, Any]]:
        return [json.loads(small) for _ in range(INNER)]

    one_small, one_large = [json.loads(small)] * INNER, [json.loads(large)] * INNER
    cases: dict[str, tuple[Callable[[dict[str, Any]], Any], Callable[[], list[dict[str, Any]]]]] = {}
    for name, text in (("condition", CONDITION), ("filter+map", FILTER_MAP)):
        assert theirs(text)(json.loads(small)) == ours(text)(json.loads(small)) == flow(text)(json.loads(small))
        cases[f"{name}, cel-expr-python"] = theirs(text), afresh
        cases[f"{name}, perdure"] = ours(text), afresh
        cases[f"{name}, perdure as MWL"] = flow(text), afresh
    cases["condition on one 1 KB context"] = ours(CONDITION), lambda: one_small
    cases["condition on one 1 MB context"] = ours(CONDITION), lambda: one_large

    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(ROUNDS):
        for name, (evaluate, contexts) in cases.items():
            times[name].append(measure(evaluate, contexts()))
    medians = {name: statistics.median(taken) for name, taken in times.items()}

    print(f"contexts of {len(small)} and {len(large)} bytes, medians of {ROUNDS} rounds")
    for name, median in medians.items():
        print(f"  {name:32} {median:9.2f} µs")
    for name in ("condition", "filter+map"):
        oracle = medians[f"{name}, cel-expr-python"]
        for label in ("perdure", "perdure as MWL"):
            print(f"  {name}: {label} is {oracle / medians[f'{name}, {label}']:.1f} times as fast")
    ratio = medians["condition on one 1 MB context"] / medians["condition on one 1 KB context"]
    print(f"  condition: 1 MB takes {ratio:.2f} times as long as 1 KB")


if __name__ == "__main__":
    main()
