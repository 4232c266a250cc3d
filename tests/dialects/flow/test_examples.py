"""Every example runs with the promised result; some use a real local service."""

import importlib.util
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.dialects.flow.views.result_comparison import differences
from perdure.wiring import Engine, languages

EXAMPLES = Path(__file__).parents[3] / "examples" / "flows"

EXPECTED: dict[str, list[tuple[Any, dict[str, Any]]]] = {
    "first-call": [("Ada", {"type": "success", "value": "Hello, Ada!"})],
    "branching": [
        ({"id": "o1", "amount": 20}, {"type": "success", "value": {"decision": "approved", "order": "o1"}}),
        ({"amount": 2000}, {"type": "success", "value": {"decision": "manual review", "because": "large amount"}}),
        ({"amount": 0}, {"type": "error", "code": "Orders.InvalidAmount", "details": 0}),
    ],
    "retry-of-bounded-attempts": [
        ({"takes": "PT0.1S"}, {"type": "success", "value": "fetched"}),
        ({"takes": "PT9S"}, {"type": "success", "value": "gave up after 3 attempts"}),
    ],
    "bound-of-all-retries": [(None, {"type": "success", "value": "Provider.Middleware.Timeout.Exceeded"})],
    "fan-out": [
        (
            ["ab", 7, "c"],
            {
                "type": "success",
                "value": {
                    "done": [{"position": 0, "size": 2}, {"position": 2, "size": 1}],
                    "failed": [{"position": 1}],
                    "sizes": [2, 1],
                },
            },
        ),
        ([1, 2, "c"], {"type": "success", "value": "2 of them failed"}),
    ],
    "pagination": [(None, {"type": "success", "value": [f"item-{number}" for number in range(1, 8)]})],
    "saga": [
        ({"full": False}, {"type": "success", "value": {"flight": "LH-100", "hotel": "room 7"}}),
        ({"full": True}, {"type": "error", "code": "Hotel.Full"}),
    ],
    "subflows": [(5, {"type": "success", "value": {"sums": [15, 6], "defaulted": 1}})],
    "polling": [("17", {"type": "success", "value": {"result": 42, "polls": 3}})],
    "order": [
        (
            {"id": "o-1", "amount": 30, "items": [{"sku": "a"}, {"sku": "b"}]},
            {
                "type": "success",
                "value": {"order": "o-1", "charge": "charge-1", "shipment": "parcel for o-1"},
            },
        ),
        (
            {"id": "o-2", "amount": 30, "items": [{"sku": "a"}, {"sku": "sold-out"}, {"sku": "b"}]},
            {"type": "error", "code": "Orders.SoldOut", "details": ["sold-out"]},
        ),
    ],
}


@pytest.fixture
def shop() -> Iterator[Any]:
    result = importlib.util.spec_from_file_location("shop_of_the_examples", EXAMPLES / "service.py")
    assert result is not None and result.loader is not None
    module = importlib.util.module_from_spec(result)
    result.loader.exec_module(module)
    with module.Shop() as shop:
        thread = threading.Thread(target=shop.serve_forever)
        thread.start()
        yield shop
        shop.shutdown()
        thread.join()


@pytest.mark.parametrize("name", EXPECTED)
async def test_an_example_gives_what_it_promises(name: str, tmp_path: Path, shop: Any) -> None:
    document = (EXAMPLES / f"{name}.json").read_bytes()
    arguments = {"service": shop.url} if b'"service"' in document else {}
    if b'"pause"' in document:
        arguments["pause"] = "PT0.05S"

    async with Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
        for input, expected in EXPECTED[name]:
            handle = await engine.start(document, input, options={"args": arguments})
            await engine.wait(handle.id)
            assert list(differences(expected, await handle.show())) == []
    assert shop.reservations.get("o-2") is None


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.json")), ids=lambda path: path.name)
def test_every_example_is_tested_and_has_no_problem(path: Path) -> None:
    assert path.stem in EXPECTED
    assert languages()["flow"].parse(path.read_bytes()).problems == []
