"""Profile "io": which documents are read in it, and what is refused there (10.4)."""

# ruff: noqa: E501 - one mistake per line reads best

import pytest

from perdure.kernel.documents.problems import Problem, Severity
from tests.dialects.playbook.cases import Case, all_cases
from tests.dialects.playbook.test_documents import problems_of
from tests.dialects.playbook.world import World, playbook

IO = "executor: {spec: {compat: io}}\n"


def is_io(text: str) -> bool:
    return bool(World(text).execution.program.is_io)


def step(body: str, head: str = "") -> str:
    return playbook(head + "workflow: [{step: a, " + body + "}, {step: b, tool: {kind: noop}}]")


def rule(then: str, when: str = "true") -> str:
    return "tool: {kind: noop, spec: {policy: {rules: [{when: " + when + ", then: {do: continue, " + then + "}}]}}}"


@pytest.mark.parametrize(
    "body",
    [
        "tool: {kind: noop, input: {}}",
        "tool: {kind: noop}, input: {}",
        "tool: {kind: noop}, set: {ctx.a: 1}",
        rule("set: {ctx.a: 1}"),
        rule("to: x", "\"{{ output.status == 'ok' }}\"").replace("do: continue, to: x", "do: continue"),
        "tool: {kind: noop}, next: {arcs: [{step: b, set: {ctx.a: 1}}]}",
        "tool: {kind: noop}, next: {arcs: [{step: b, when: \"{{ event.name == 'call.done' }}\"}]}",
    ],
)
def test_a_document_with_words_of_the_profile_alone_is_read_in_it(body: str) -> None:
    """PBK-158."""
    assert is_io(step(body))
    assert not problems_of(step(body))
    refused = problems_of(step(body, "executor: {spec: {compat: none}}\n"))
    assert bool(refused) == ("output" not in body and "call.done" not in body)


def test_a_result_is_read_by_the_name_of_its_step() -> None:
    """PBK-158 PBK-173: `data` of a result that has none is the result; small members of a large one are at hand."""
    text = playbook("""
workflow:
  - step: small
    tool: {kind: noop, result: {n: 1}}
    next: {arcs: [{step: with_data}]}
  - step: with_data
    tool: {kind: noop, result: {data: 2}}
    next: {arcs: [{step: large}]}
  - step: large
    tool: {kind: noop, input: {}, result: {rows: 8, text: "{{ 'x' * 70000 }}", parts: [1]}}
    next: {arcs: [{step: selected}]}
  - step: selected
    tool: {kind: noop, result: {meta: {page: 3}, text: "{{ 'x' * 70000 }}"}}
    output: {output_select: [meta.page]}
    next: {arcs: [{step: early}]}
  - step: early
    tool:
      - {name: one, kind: noop, result: {a: 1, text: "{{ 'x' * 3000 }}"}, output_select: {threshold_kb: 2}}
    next: {arcs: [{step: read}]}
  - step: read
    tool:
      - name: read
        kind: noop
        result: "{{ [small.data.n, small, with_data.data, large.rows, large._ref is defined, large.parts, large.text | length,
          selected.page, selected.meta_page, selected.rows is defined,
          early.a, early._store] }}"
        set: {seen: "{{ output }}"}
    set: {ctx.ids: "{{ [job.execution_id == execution_id, job.id == job.uuid] }}"}
""")
    world = World(text)

    shown = world.run()

    assert shown["ctx"] == {
        "seen": [1, {"n": 1}, 2, 8, True, [1], 70000, 3, 3, False, 1, "kv"],
        "ids": [True, True],
    }


def test_routing_reads_only_what_a_reference_has() -> None:
    """PBK-174."""
    text = playbook("""
workflow:
  - step: large
    tool: {kind: noop, input: {}, result: {n: 1, parts: [1], text: "{{ 'x' * 70000 }}"}}
    next:
      arcs:
        - {step: end, when: "{{ large.parts is defined }}"}
        - {step: other, when: "{{ large.n == 1 }}"}
  - {step: end, tool: {kind: noop}}
  - {step: other, tool: {kind: noop}}
""")

    assert list(World(text).run()["steps"]) == ["large", "other"]


def test_a_task_in_a_loop_may_read_its_index_by_name() -> None:
    """PBK-158."""
    text = playbook("""
workflow:
  - step: s
    loop: {in: [a, b], iterator: letter}
    tool: {kind: noop, input: {n: "{{ loop_index }}"}, result: "{{ letter }}{{ n }}"}
    set: {ctx.seen: "{{ s.results }}"}
""")

    assert World(text).run()["ctx"] == {"seen": ["a0", "b1"]}


def test_a_bare_name_may_be_the_label_of_an_earlier_task_of_the_step() -> None:
    """PBK-158: before a step of that name; after what the task's own args and ctx have."""
    text = playbook("""
workflow:
  - step: fetch
    tool: {kind: noop, result: of the step}
    next: {arcs: [{step: use}]}
  - step: use
    set: {ctx.seen: "{{ output.data }}"}
    tool:
      - {name: fetch, kind: noop, result: {rows: [1, 2]}}
      - {name: rows, kind: noop, input: {fetched: "{{ fetch.rows }}"}, result: "{{ fetched }}"}
""")

    assert World(text).run()["ctx"] == {"seen": [1, 2]}


@pytest.mark.parametrize(
    "body",
    [
        "tool: {kind: noop}",
        'tool: {kind: noop, result: "{{ bare }}"}',
        'tool: {kind: noop, result: "{{ a.ok }}"}',
        "tool: {kind: noop, args: {}}",
        "tool: {kind: noop, args: {}}, next: {arcs: [{step: b, when: \"{{ args.x == 'call.done' }}\"}]}",
    ],
)
def test_any_other_document_is_canonical(body: str) -> None:
    """PBK-158 PBK-146: a bare name alone is a mistake, not a profile."""
    assert not is_io(step(body))


def test_two_vocabularies_in_different_steps_need_the_flag() -> None:
    """PBK-158."""
    text = playbook(
        '%sworkflow: [{step: a, tool: {kind: noop, args: {}}, next: {arcs: [{step: b}]}}, {step: b, tool: {kind: noop, input: {x: "{{ y }}"}}}]'
    )

    (problem,) = problems_of(text % "")
    assert problem.path == "workflow[1].tool.input" and "compat: io" in problem.hint
    assert not problems_of(text % IO)
    assert is_io(text % IO)


BAD: list[tuple[str, str, str]] = [
    # body of the step, path, words of the message or the remedy
    ("tool: {kind: noop, input: {}, args: {}}", "workflow[0].tool.input", "mixes"),
    ("tool: {kind: noop, args: {}}, input: {}", "workflow[0].input", "mixes"),
    ("input: {}, " + rule("set_ctx: {a: 1}"), "workflow[0].input", "'set_ctx'"),
    (rule("set: {ctx.a: 1}, set_iter: {b: 1}"), "workflow[0].tool.spec.policy.rules[0].then.set", "mixes"),
    (
        rule("set: {ctx.a: 1}", "\"{{ outcome.status == 'ok' }}\""),
        "workflow[0].tool.spec.policy.rules[0].then.set",
        "'outcome'",
    ),
    ("tool: {kind: noop, input: [1]}", "workflow[0].tool.input", "must be a map"),
    ("tool: {kind: noop}, input: text", "workflow[0].input", "must be a map"),
    ("input: {}, next: {arcs: []}", "workflow[0].input", "no task"),
    ("tool: {kind: noop}, set: 5", "workflow[0].set", "must be a map"),
    ("tool: {kind: noop}, set: {iter.a: 5}", 'workflow[0].set["iter.a"]', "ended"),
    ("tool: {kind: noop}, set: {workload.a: 5}", 'workflow[0].set["workload.a"]', "cannot be set"),
    ("tool: {kind: noop}, set: {ctx.: 5}", 'workflow[0].set["ctx."]', "empty"),
    (
        "tool: {kind: noop}, next: {arcs: [{step: b, set: {step.a: 1}}]}",
        'workflow[0].next.arcs[0].set["step.a"]',
        "ended",
    ),
    (
        'tool: {kind: noop}, next: {arcs: [{step: b, set: {ctx.a: "{{ 1 +"}}]}',
        'workflow[0].next.arcs[0].set["ctx.a"]',
        "",
    ),
    (rule("set: {iter.a: 1}"), "workflow[0].tool.spec.policy.rules[0].then.set", "loop"),
    (
        "loop: {in: [], iterator: n}, " + rule("set: {iter.n: 1}"),
        'workflow[0].tool.spec.policy.rules[0].then.set["iter.n"]',
        "read-only",
    ),
    ('tool: {kind: noop, input: {x: "{{ 1 +"}}', "workflow[0].tool.input.x", ""),
    ('tool: {kind: noop}, input: {x: "{{ 1 +"}', "workflow[0].input.x", ""),
    ('tool: {kind: noop}, set: {ctx.a: "{{ keychain.x }}"}', 'workflow[0].set["ctx.a"]', "keychain"),
    ('tool: {kind: noop, input: {a: "{{ vars.x }}"}}', "workflow[0].tool.input.a", "ctx"),
    ("tool: {kind: noop, input: {}, set: {iter.a: 1}}", "workflow[0].tool.set", "loop"),
    ('tool: {kind: noop, set: {ctx.a: "{{ 1 +"}}', 'workflow[0].tool.set["ctx.a"]', ""),
    ("tool: {kind: noop, args: {}, set: {a: 1}}", "workflow[0].tool.set", "set_ctx"),
    ("tool: {kind: noop, input: {}, retry: 3}", "workflow[0].tool.retry", "do: retry"),
    ("tool: {kind: noop, input: {}}, when: true", "workflow[0].when", "admit"),
]


@pytest.mark.parametrize(("body", "path", "message"), BAD, ids=[body for body, _, _ in BAD])
def test_a_problem_points_to_what_the_author_wrote(body: str, path: str, message: str) -> None:
    """PBK-158 PBK-034."""
    text = step(body, IO)
    problems = problems_of(text)

    (problem,) = [problem for problem in problems if problem.path == path] or [Problem("", f"only {problems}")]
    assert message in problem.message + problem.hint
    assert problem.line == 1 + text[: text.index("workflow:")].count("\n")


def test_an_unknown_profile_is_refused() -> None:
    """PBK-158."""
    (problem,) = problems_of(step("tool: {kind: noop}", "executor: {spec: {compat: v1}}\n"))

    assert problem.path == "executor.spec.compat" and "io" in problem.message


def test_metadata_may_ask_for_the_profile_too() -> None:
    """PBK-158."""
    text = step("tool: {kind: noop, args: {}}").replace("path: tests/test", "path: tests/test, compat: io")

    assert is_io(text)


def test_a_gate_that_reads_bare_names_shows_them_as_ctx() -> None:
    """PBK-230 PBK-213."""
    text = step(
        'spec: {policy: {admit: {rules: [{when: "{{ go and ctx.on and b }}", then: {allow: true}}]}}}, tool: {kind: noop, input: {}}'
    )
    world = World(text)

    (pending,) = world.settle()["pending"]

    assert pending["reads"] == ["ctx.b", "ctx.go", "ctx.on"]
    assert not [problem for problem in problems_of(text, Severity.WARNING) if "b" in problem.message.split("ctx.")]


@pytest.mark.parametrize(
    "case", [case for case in all_cases() if case.name.startswith("io-")], ids=lambda case: case.name
)
def test_the_cases_of_the_profile_are_read_in_it(case: Case) -> None:
    assert is_io(case.document)


CODE = "workload: {size: 3}\n" + IO + "workflow: [{step: a, tool: {kind: python, code: %s}}]"
TEMPLATES = [
    """'result = {"n": {{ size }}}'""",
    """'result = "{{ execution_id }}"'""",
    """'result = {{ a }} +'""",  # not even Python
]


@pytest.mark.parametrize("code", TEMPLATES)
def test_a_template_in_code_is_only_text_and_check_says_so(code: str) -> None:
    """PBK-092."""
    (warning,) = problems_of(playbook(CODE % code), Severity.WARNING)
    assert warning.code == "PBK-092" and "is not a template" in warning.message
    assert warning.hint is not None and "input: {value:" in warning.hint


@pytest.mark.parametrize(
    "code",
    [
        """'result = f"{{size}} {{ execution_id }}"'""",
        """'result = "{{ unknown }}"'""",
        """'result = {"size": {"size": 1}}'""",
        """'result = {{1}}'""",
    ],
)
def test_braces_that_mean_something_in_python_are_no_template(code: str) -> None:
    """PBK-092."""
    assert problems_of(playbook(CODE % code), Severity.WARNING) == []


SQL = "workflow: [{step: a, tool: {kind: duckdb, %s}}]"


@pytest.mark.parametrize(
    ("field", "is_number"),
    [
        ('query: "DELETE FROM t WHERE id = {{ execution_id }}"', True),
        ('commands: ["SELECT 1", "INSERT INTO t VALUES (1, {{ execution_id }})"]', True),
        ("query: \"DELETE FROM t WHERE id = '{{ execution_id }}'\"", False),
        ("query: \"SELECT 'id = {{ execution_id }}'\"", False),
        ('query: "SELECT * FROM run_{{ execution_id }}"', False),
    ],
)
def test_an_id_that_a_statement_uses_as_a_number_is_warned_of(field: str, is_number: bool) -> None:
    """PBK-212."""
    warnings = [problem.code for problem in problems_of(playbook(SQL % field), Severity.WARNING)]
    assert warnings == (["PBK-212"] if is_number else [])


@pytest.mark.parametrize("workload", ["{t: '{{ now() }}'}", "{a: 1, t: '{{ b }}'}"])
def test_what_the_workload_cannot_read_is_warned_of(workload: str) -> None:
    """PBK-012."""
    text = playbook(f"workload: {workload}\n{IO}workflow: [{{step: a, tool: {{kind: noop}}}}]")
    (warning,) = problems_of(text, Severity.WARNING)
    assert warning.code == "PBK-012" and "the workload cannot read" in warning.message


def test_the_workload_reads_itself_by_bare_names() -> None:
    """PBK-012 PBK-158."""
    text = playbook(
        "workload: {a: 1, t: '{{ a }} {{ job.uuid }}'}\n" + IO + "workflow: [{step: a, tool: {kind: noop}}]"
    )
    assert problems_of(text, Severity.WARNING) == []
