"""Invariant 5: a loop is not ended because of its length; a failure that is handled for ever ends the execution."""

from perdure.kernel.execution import Limits
from tests.dialects.playbook.world import World

HEAD = "apiVersion: noetl.io/v10\nkind: Playbook\nmetadata: {name: spinning, path: spinning}\n"


def test_each_item_of_a_loop_allows_it_further_moves() -> None:
    document = f"""{HEAD}
workflow:
  - step: all
    loop: {{in: "{{{{ range(500) | list }}}}", iterator: item}}
    tool: {{kind: noop, result: "{{{{ iter.item }}}}"}}
"""
    world = World(document, limits=Limits(slice=100, moves=500), crash=True)

    assert world.run()["status"] == "success"


def test_a_failure_that_a_rule_handles_for_ever_ends_the_execution() -> None:
    document = f"""{HEAD}
workflow:
  - step: again
    tool:
      - bad:
          kind: noop
          result: "{{{{ 1 / 0 }}}}"
          spec: {{policy: {{rules: [{{else: {{then: {{do: jump, to: bad}}}}}}]}}}}
"""
    world = World(document, limits=Limits(slice=100, caught=300))

    view = world.run()

    assert (view["status"], view["code"]) == ("failed", "Platform.MovesExhausted")
    assert "300 failures" in str(view)


def test_a_failure_that_an_arc_handles_for_ever_ends_the_execution() -> None:
    document = f"""{HEAD}
workflow:
  - step: again
    tool: {{kind: noop, result: "{{{{ 1 / 0 }}}}"}}
    next: {{arcs: [{{step: again, when: "{{{{ event.status == 'error' }}}}"}}]}}
"""
    world = World(document, limits=Limits(slice=100, caught=300))

    assert "300 failures" in str(world.run())
