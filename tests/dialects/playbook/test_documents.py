"""Valid documents, and every problem at once, with its place, its rule and its remedy (sections 1.1 to 1.8)."""

# ruff: noqa: E501 - one mistake per line reads best

from typing import Any

import pytest

from perdure.dialects.playbook import Playbook
from perdure.kernel.documents.problems import Problem, Severity
from tests.dialects.playbook.world import HEAD, playbook

STEP = "workflow: [{step: a, tool: {kind: noop}}]"


def problems_of(text: str, severity: Severity = Severity.ERROR) -> list[Problem]:
    known = ("own",)
    problems = Playbook(known.__contains__, lambda: known).parse(text.encode()).problems
    return [problem for problem in problems if problem.severity is severity]


def step(body: str) -> str:
    return playbook("workflow: [{step: a, " + body + "}, {step: b, tool: {kind: noop}}]")


def rules(*listed: str) -> str:
    return step("tool: {kind: noop, name: t, spec: {policy: {rules: [" + ", ".join(listed) + "]}}}")


ADMIT = "spec: {policy: {admit: %s}}, tool: {kind: noop}"

BAD: list[tuple[str, str, str, str]] = [
    # text, rule, path, words of the message or the remedy
    (playbook(STEP + "\nextra: 1"), "PBK-001", "extra", "no member"),
    (playbook(STEP + "\nvars: {}"), "PBK-032", "vars", "ctx"),
    ("[]", "PBK-001", "", "must be a map"),
    (HEAD.replace("v10", "v1") + STEP, "PBK-002", "apiVersion", "noetl.io/v10"),
    (HEAD.replace("kind: Playbook", "kind: Story") + STEP, "PBK-002", "kind", "Playbook"),
    (HEAD.replace("name: test, ", "") + STEP, "PBK-003", "metadata", "'name'"),
    (HEAD.replace("tests/test", '""') + STEP, "PBK-003", "metadata.path", "empty"),
    (playbook("workflow: []"), "PBK-004", "workflow", "at least one"),
    (playbook("workflow: [{tool: {kind: noop}}]"), "PBK-004", "workflow[0]", "'step'"),
    (playbook("workflow: [{step: a, next: {arcs: []}}, {step: a, next: {arcs: []}}]"), "PBK-004", "workflow[1].step", "two"),
    (playbook("workflow: [{step: true, tool: {kind: noop}}]"), "PBK-005", "workflow[0].step", "quotes"),
    (playbook("workflow: [{step: on, tool: {kind: noop}}]"), "PBK-005", "workflow[0].step", '"on"'),
    (playbook("workflow:\n- tool: {kind: noop}\n  step: Yes"), "PBK-005", "workflow[0].step", "quotes"),
    (playbook("workload: {a: [{b: '{{ ctx.x }}'}]}\n" + STEP), "PBK-012", "workload.a[0].b", "ctx"),
    (step("tool: [{kind: noop, name: 5}]"), "PBK-018", "workflow[0].tool[0].name", "a text"),
    (step("tool: {kind: noop, name: ''}"), "PBK-018", "workflow[0].tool.name", "empty"),
    (step("tool: {kind: python, code: }"), "PBK-020", "workflow[0].tool", "'code'"),
    (rules("{when: '{{ outcome[\"status\"] == \"success\" }}', then: {do: break}}"), "PBK-032", "workflow[0].tool.spec.policy.rules[0].when", "'ok'"),
    (step("tool: {kind: python, code: x, libs: [math]}"), "PBK-094", "workflow[0].tool.libs", "a map"),
    (step("tool: {kind: python, code: x, libs: math}"), "PBK-094", "workflow[0].tool.libs", "a map"),
    (step("tool: {kind: python, code: x, libs: {m: 1}}"), "PBK-094", "workflow[0].tool.libs.m", "a module"),
    (step("tool: {kind: python, code: x, libs: {m: {of: math}}}"), "PBK-094", "workflow[0].tool.libs.m", "'from' and 'import'"),
    (step("tool: {kind: python, code: x, libs: {m: {from: [math]}}}"), "PBK-094", "workflow[0].tool.libs.m", "names"),
    (step("tool: {kind: noop, args: [1]}"), "PBK-020", "workflow[0].tool.args", "a map"),
    (step("tool: {kind: noop, args: text}"), "PBK-020", "workflow[0].tool.args", "a map"),
    (rules("{when: true, then: {do: retry, delay: 5s}}"), "PBK-023", "workflow[0].tool.spec.policy.rules[0].then.delay", "'5s'"),
    (rules("{when: \"{{ outcome.status == 'success' }}\", then: {do: break}}"), "PBK-032", "workflow[0].tool.spec.policy.rules[0].when", "'ok'"),
    (rules("{when: '{{ \"success\" != outcome.status }}', then: {do: break}}"), "PBK-032", "workflow[0].tool.spec.policy.rules[0].when", "'ok'"),
    (step("tool: {kind: noop}, next: {arcs: [{step: b, spec: {do: jump}}]}"), "PBK-031", "workflow[0].next.arcs[0].spec.do", "task policies"),
    (step("tool: {kind: noop}, next: {arcs: [{step: b, args: {x: {y: '{{ keychain.k }}'}}}]}"), "PBK-184", "workflow[0].next.arcs[0].args.x.y", "keychain"),
    (step("tool: {kind: noop}, loop: {in: [1], iterator: x, spec: {max_in_flight: '3'}}"), "PBK-030", "workflow[0].loop.spec.max_in_flight", "'3'"),
    (step("tool: {kind: noop}, loop: {in: [1], iterator: x, pagination: {}}"), "PBK-032", "workflow[0].loop.pagination", "jump"),
    (playbook(STEP + "\nworkflow: []"), "DOC-DUPLICATE-KEY", "", "workflow"),
    (playbook(STEP) + "\n---\na: 1\n", "DOC-COUNT", "", "second document"),
    (playbook("executor: {profile: local, kind: distributed}\n" + STEP), "PBK-006", "executor", "contradict"),
    (playbook("executor: {spec: {entry_step: z}}\n" + STEP), "PBK-007", "executor.spec.entry_step", "'z'"),
    (playbook("executor: {spec: {final_step: 3}}\n" + STEP), "PBK-007", "executor.spec.final_step", "name of a step"),
    (playbook("executor: {spec: {no_next_is_error: 1}}\n" + STEP), "PBK-007", "executor.spec.no_next_is_error", "true or false"),
    (playbook("executor: {requires: {tools: x}}\n" + STEP), "PBK-008", "executor.requires.tools", "list"),
    (
        playbook("executor: {spec: {policy: {completion: {on_failure: never}}}}\n" + STEP),
        "PBK-009",
        "executor.spec.policy.completion.on_failure",
        "fail_fast",
    ),
    (playbook("executor: {spec: {x: {do: retry}}}\n" + STEP), "PBK-031", "executor.spec.x.do", "task policies"),
    (playbook("keychain: {k: bearer}\n" + STEP), "PBK-010", "keychain", "a list"),
    (playbook("keychain: [{name: a-b, kind: bearer}]\n" + STEP), "PBK-010", "keychain[0].name", "a-b"),
    (playbook("keychain: [{kind: bearer}]\n" + STEP), "PBK-010", "keychain[0]", "'name'"),
    (playbook("keychain: [{name: k}]\n" + STEP), "PBK-010", "keychain[0]", "'kind'"),
    (playbook("keychain: [{name: k, kind: bearer}, {name: k, kind: basic}]\n" + STEP), "PBK-010", "keychain[1].name", "two"),
    (playbook("keychain: [{name: k, kind: oauth}]\n" + STEP), "PBK-181", "keychain[0].kind", "oauth2"),
    (playbook("keychain: [{name: k, kind: oauth2}]\n" + STEP), "PBK-181", "keychain[0]", "endpoint"),
    (playbook("keychain: [{name: k, kind: secret_manager, provider: vault}]\n" + STEP), "PBK-181", "keychain[0].provider", "file"),
    (playbook("keychain: [{name: k, kind: secret_manager, map: [a]}]\n" + STEP), "PBK-181", "keychain[0].map", "map"),
    (playbook("keychain: [{name: k, kind: bearer, ttl_seconds: 0}]\n" + STEP), "PBK-181", "keychain[0].ttl_seconds", "more than 0"),
    (playbook("keychain: [{name: k, kind: bearer, auto_renew: 1}]\n" + STEP), "PBK-181", "keychain[0].auto_renew", "true or false"),
    (playbook("keychain: [{name: k, kind: bearer, scope: execution}]\n" + STEP), "PBK-182", "keychain[0].scope", "`local`"),
    (playbook("keychain: [{name: k, kind: bearer, scope: catalog}]\n" + STEP), "PBK-182", "keychain[0].scope", "`global`"),
    (playbook("keychain: [{name: k, kind: bearer, scope: all}]\n" + STEP), "PBK-182", "keychain[0].scope", "shared"),
    (
        playbook('keychain: [{name: k, kind: bearer, token: "{{ keychain.z.t }}"}, {name: z, kind: bearer}]\n' + STEP),
        "PBK-180",
        "keychain[0].token",
        "above",
    ),
    (step("tool: {kind: secrets, provider: env}"), "PBK-020", "workflow[0].tool", "'map'"),
    (step('tool: {kind: playbook, path: x, args: {t: "{{ keychain.k.token }}"}}'), "PBK-155", "workflow[0].tool.args", "shared"),
    (
        step('tool: {kind: secrets, key: K, spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {x: "{{ outcome.result }}"}}}}]}}}'),
        "PBK-155",
        "workflow[0].tool.spec.policy.rules[0].else.then.set_ctx",
        "later task",
    ),
    (
        step('tool: [{s: {kind: secrets, key: K}}, {t: {kind: noop, spec: {policy: {rules: [{when: "{{ results.s.a == 1 }}", then: {do: break}}]}}}}]'),
        "PBK-155",
        "workflow[0].tool[1].t.spec.policy.rules[0].when",
        "results.s",
    ),
    (
        step('tool: [{s: {kind: secrets, key: K}}, {t: {kind: noop, spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {x: "{{ _prev }}"}}}}]}}}}]'),
        "PBK-155",
        "workflow[0].tool[1].t.spec.policy.rules[0].else.then.set_ctx",
        "_prev",
    ),
    (playbook("workbook: {tasks: {t: {kind: noop, next: x}}}\n" + STEP), "PBK-020", "workbook.tasks.t.next", "no member"),
    (playbook("workbook: {tasks: {t: {kind: workbook, task: t}}}\n" + STEP), "PBK-099", "workbook.tasks.t", "itself"),
    (
        playbook("workbook: {tasks: {t: {kind: noop, spec: {policy: {rules: [{when: true, then: {do: jump, to: z}}]}}}}}\nworkflow: [{step: a, tool: {kind: workbook, task: t}}]"),
        "PBK-025",
        "workflow[0].tool.spec.policy.rules[0].then.to",
        "no task 'z'",
    ),
    (step("tool: {kind: workbook, task: x}"), "PBK-099", "workflow[0].tool.task", "no task 'x'"),
    (step("tool: {kind: noop}, command: ls"), "PBK-032", "workflow[0].command", "inside `tool`"),
    (step("tool: {kind: noop}, nxt: 1"), "PBK-014", "workflow[0].nxt", "did you mean 'next'"),
    (step("desc: nothing"), "PBK-015", "workflow[0]", "'tool' or 'next'"),
    (step("loop: {in: [1], iterator: x}, next: {arcs: []}"), "PBK-016", "workflow[0]", "repeat"),
    (step("tool: [1]"), "PBK-017", "workflow[0].tool[0]", "map"),
    (step("tool: [{a: {kind: noop}, b: {kind: noop}}]"), "PBK-017", "workflow[0].tool[0]", "one label"),
    (step("tool: []"), "PBK-018", "workflow[0].tool", "at least one task"),
    (step("tool: [{a: {kind: noop}}, {name: a, kind: noop}]"), "PBK-018", "workflow[0].tool[1]", "twice"),
    (step("tool: {code: x}"), "PBK-018", "workflow[0].tool", "'kind'"),
    (step("tool: {kind: pyton}"), "PBK-019", "workflow[0].tool.kind", "did you mean 'python'"),
    (step("tool: {kind: playbook.python}"), "PBK-019", "workflow[0].tool.kind", "no tool kind"),
    (step("tool: {kind: iterator}"), "PBK-032", "workflow[0].tool.kind", "`loop`"),
    (step("tool: {kind: noop, retry: 3}"), "PBK-020", "workflow[0].tool.retry", "do: retry"),
    (step("tool: {kind: http}"), "PBK-020", "workflow[0].tool", "'url'"),
    (step("tool: {kind: http, url: x, boddy: 1}"), "PBK-020", "workflow[0].tool.boddy", "did you mean 'body'"),
    (step("tool: {kind: noop, spec: {policy: []}}"), "PBK-021", "workflow[0].tool.spec.policy", "map"),
    (step("tool: {kind: noop, spec: {policy: {}}}"), "PBK-021", "workflow[0].tool.spec.policy", "'rules'"),
    (rules("{then: {do: continue}}"), "PBK-022", "workflow[0].tool.spec.policy.rules[0]", "neither"),
    (rules("{else: {then: {do: continue}}}", "{when: true, then: {do: fail}}"), "PBK-022", "workflow[0].tool.spec.policy.rules[0]", "last"),
    (rules("{when: true, then: {}}"), "PBK-023", "workflow[0].tool.spec.policy.rules[0].then", "'do'"),
    (rules("{when: true, then: {do: skip}}"), "PBK-023", "workflow[0].tool.spec.policy.rules[0].then.do", "continue"),
    (rules("{when: true, then: {do: retry, attempts: 0}}"), "PBK-023", "workflow[0].tool.spec.policy.rules[0].then.attempts", "1 or more"),
    (rules("{when: true, then: {do: fail, attempts: 2}}"), "PBK-024", "workflow[0].tool.spec.policy.rules[0].then.attempts", "do: retry"),
    (rules("{when: true, then: {do: fail, set_iter: {x: 1}}}"), "PBK-024", "workflow[0].tool.spec.policy.rules[0].then.set_iter", "loop"),
    (rules("{when: true, then: {do: fail, set_vars: {}}}"), "PBK-032", "workflow[0].tool.spec.policy.rules[0].then.set_vars", "set_ctx"),
    (rules("{expr: true, then: {do: fail}}"), "PBK-032", "workflow[0].tool.spec.policy.rules[0].expr", "`when`"),
    (rules("{when: true, then: {do: jump, to: z}}"), "PBK-025", "workflow[0].tool.spec.policy.rules[0].then.to", "no task 'z'"),
    (rules("{when: true, then: {do: jump, to: previous}}"), "PBK-025", "workflow[0].tool.spec.policy.rules[0].then.to", "first"),
    (step("tool: {kind: noop, spec: {policy: {rules: [], finally: [1]}}}"), "PBK-026", "workflow[0].tool.spec.policy.finally", "reserved"),
    (step(ADMIT % "{rules: []}"), "PBK-027", "workflow[0].spec.policy.admit", "at least one"),
    (step(ADMIT % "{rules: [{when: true, then: {allow: 1}}]}"), "PBK-027", "workflow[0].spec.policy.admit.rules[0].then.allow", "true or false"),
    (step(ADMIT % "{on_deny: drop, rules: [{when: true, then: {allow: true}}]}"), "PBK-027", "workflow[0].spec.policy.admit.on_deny", "discard"),
    (step("next: b"), "PBK-028", "workflow[0].next", "arcs"),
    (step("next: [b]"), "PBK-028", "workflow[0].next", "arcs"),
    (step("next: {step: b}"), "PBK-028", "workflow[0].next", "arcs"),
    (step("next: {arcs: [{step: z}]}"), "PBK-028", "workflow[0].next.arcs[0].step", "no step 'z'"),
    (step("next: {spec: {mode: all}, arcs: []}"), "PBK-028", "workflow[0].next.spec.mode", "inclusive"),
    (step("next: {arcs: [{step: b, when: ctx.x}]}"), "PBK-029", "workflow[0].next.arcs[0].when", "{{ ctx.x }}"),
    (step('next: {arcs: [{step: b, when: "{{ ctx. }}"}]}'), "PBK-029", "workflow[0].next.arcs[0].when", "expected"),
    (step('tool: {kind: noop, result: {a: ["{{ ( }}"]}}'), "PBK-029", "workflow[0].tool.result.a[0]", ""),
    (step("tool: {kind: noop}, loop: {iterator: x}"), "PBK-030", "workflow[0].loop", "'in'"),
    (step("tool: {kind: noop}, loop: {in: [1], iterator: index}"), "PBK-030", "workflow[0].loop.iterator", "index"),
    (step("tool: {kind: noop}, loop: {in: [1], iterator: x, mode: parallel}"), "PBK-032", "workflow[0].loop.mode", "loop.spec.mode"),
    (step("tool: {kind: noop}, loop: {in: [1], iterator: x, spec: {max_in_flight: 0}}"), "PBK-030", "workflow[0].loop.spec.max_in_flight", "1 or more"),
    (step("tool: {kind: noop}, loop: {in: [1], iterator: x, spec: {reduce: {a: avg}}}"), "PBK-113", "workflow[0].loop.spec.reduce.a", "sum"),
    (step("tool: {kind: noop}, loop: {cursor: {}, in: [1], iterator: x}"), "PBK-114", "workflow[0].loop.cursor", "not both"),
    (step("tool: {kind: noop}, spec: {next_mode: exclusive}"), "PBK-031", "workflow[0].spec.next_mode", "next.spec.mode"),
    (step("tool: {kind: noop}, spec: {policy: {x: {do: retry}}}"), "PBK-031", "workflow[0].spec.policy.x.do", "task"),
    (step("tool: {kind: noop}, spec: {join: {from: [c]}}"), "PBK-130", "workflow[0].spec.join.from[0]", "'c'"),
    (step("tool: {kind: noop}, spec: {join: {from: [a]}}"), "PBK-130", "workflow[0].spec.join.from[0]", "itself"),
    (step("tool: {kind: noop}, spec: {join: {from: []}}"), "PBK-130", "workflow[0].spec.join.from", "at least one"),
    (step("tool: {kind: noop}, spec: {join: {mode: all}}"), "PBK-130", "workflow[0].spec.join", "from: [a, b]"),
    (step("tool: {kind: noop}, spec: {join: {from: [b], mode: most}}"), "PBK-130", "workflow[0].spec.join.mode", "any"),
    (step("tool: {kind: noop}, spec: {join: {from: [b], mode: n}}"), "PBK-130", "workflow[0].spec.join", "'n'"),
    (step("tool: {kind: noop}, spec: {join: {from: [b], mode: n, n: 2}}"), "PBK-130", "workflow[0].spec.join.n", "1"),
    (step("tool: {kind: noop}, spec: {join: {from: [b], n: 1}}"), "PBK-130", "workflow[0].spec.join.n", "`mode: n`"),
    (step("tool: {kind: noop}, spec: {timeout: soon}"), "PBK-193", "workflow[0].spec.timeout", "30s"),
    (step("tool: {kind: noop}, when: x"), "PBK-032", "workflow[0].when", "spec.policy.admit.rules"),
    (step('tool: {kind: noop}, next: {arcs: [{step: b, args: {x: "{{ keychain.k }}"}}]}'), "PBK-184", "workflow[0].next.arcs[0].args", "fields of a task"),
    (
        step("tool: {kind: noop, spec: {policy: {rules: [{when: true, then: {do: fail, set_iter: {x.y: 1}}}]}}}, loop: {in: [1], iterator: x}"),
        "PBK-105",
        "workflow[0].tool.spec.policy.rules[0].then.set_iter",
        "read-only",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "code", "path", "message"), BAD, ids=[f"{row[1]}-{index}" for index, row in enumerate(BAD)]
)
def test_a_mistake_is_named_with_its_rule_its_place_and_its_remedy(
    text: str, code: str, path: str, message: str
) -> None:
    """PBK-034."""
    problems = problems_of(text)

    places = [(problem.code, problem.path) for problem in problems]
    assert any(item == code and at.startswith(path) for item, at in places), places
    problem = next(item for item in problems if item.code == code and item.path.startswith(path))
    assert message in problem.message + problem.hint
    assert problem.line is not None and problem.column is not None


@pytest.mark.parametrize("word", ["case", "retry", "sink", "pipe", "save", "vars", "type", "when"])
def test_legacy_words_of_a_step_are_refused_with_their_replacement(word: str) -> None:
    """PBK-032."""
    (problem,) = problems_of(step(f"tool: {{kind: noop}}, {word}: 1"))

    assert problem.code == "PBK-032" and problem.hint.startswith("Use ")


def test_all_problems_are_told_at_once_in_order_of_the_text() -> None:
    """PBK-034."""
    problems = problems_of(playbook("vars: 1\nworkflow: [{step: a, tool: {kind: x}}, {step: a, next: b}]"))

    assert [problem.code for problem in problems] == ["PBK-032", "PBK-019", "PBK-004", "PBK-028"]
    assert [problem.line for problem in problems] == [5, 6, 6, 6]


WARN: list[tuple[str, str]] = [
    (step('next: {arcs: [{step: b, when: "{{ workload.x }} == y"}]}'), "a text beside a template makes a text"),
    (rules("{when: true, then: {do: fail}}"), "no rule says `else`"),
    (playbook("workflow: [{step: a, tool: {kind: noop}}, {step: b, tool: {kind: noop}}]"), "no arc leads to step 'b'"),
    (playbook("executor: {spec: {final_step: a}}\n" + STEP), "also reached by ordinary control"),
    (step("next: {arcs: [{step: b}, {step: a, when: true}]}"), "always matches"),
    (step(ADMIT % "{rules: [{else: {then: {allow: false}}}]}"), "can never run"),
    (step(ADMIT % '{rules: [{when: "{{ ctx.go }}", then: {allow: true}}]}'), "sets ctx.go"),
    (step(ADMIT % '{rules: [{when: "{{ workload.go }}", then: {allow: true}}]}'), "a denial is final"),
    (
        step("tool: {kind: noop, spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {x: 1}}}}]}}}, loop: {in: [1], iterator: i, spec: {mode: parallel}}"),
        "iterations of a parallel loop set ctx",
    ),
    (step('tool: {kind: noop, result: "{{ who }}"}'), "there is no 'who'"),
    (step('tool: {kind: noop, result: "{{ keychain.k.token }}"}'), "no entry 'k'"),
    (step("tool: {kind: http, url: x, auth: api}"), "'api' is not in the keychain"),
    (playbook("keychain: [{name: k, kind: bearer, token: abc}]\n" + STEP), "is written in the document"),
    (playbook('keychain: [{name: k, kind: bearer, token: "{{ workload.t }}"}]\n' + STEP), "the input of a run is recorded"),
    (playbook("keychain: [{name: k, kind: bearer, tokn: abc}]\n" + STEP), "has no field 'tokn'"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), WARN, ids=[row[1] for row in WARN])
def test_what_is_probably_not_meant_is_only_a_warning(text: str, message: str) -> None:
    """PBK-033 PBK-146 PBK-186."""
    assert problems_of(text) == []
    assert any(message in problem.message for problem in problems_of(text, Severity.WARNING))


GOOD = [
    playbook(
        """workflow: [{step: "on", tool: {kind: noop}, next: {arcs: [{step: 'yes'}]}}, {step: 'yes', next: {arcs: []}}]"""
    ),
    step("tool: {kind: noop, args: '{{ workload }}'}"),
    rules("{when: '{{ true }}', then: {do: retry, delay: '{{ workload.pause }}'}}"),
    step("next: {arcs: []}"),
    step("tool: {kind: own, whatever: 1}"),
    step("tool: [{kind: noop}, {x: {kind: noop}}, {name: y, kind: noop}]"),
    playbook("workbook: [{name: t, tool: {kind: noop}}]\n" + STEP),
    playbook("executor: {profile: auto, kind: hybrid, version: noetl-runtime/2, spec: {pool: default, x: 1}}\n" + STEP),
    playbook(
        "keychain: [{name: openai_token, kind: secret_manager}, {name: pg_k8s, kind: postgres_credential}]\n" + STEP
    ),
    HEAD.replace("tests/test}", "tests/test, version: 3, tags: one, labels: {}, other: [1]}") + STEP,
]


@pytest.mark.parametrize("text", GOOD)
def test_what_is_allowed_has_no_errors(text: str) -> None:
    """PBK-003 PBK-006 PBK-013 PBK-015 PBK-017 PBK-019 PBK-028."""
    assert problems_of(text) == []


def program_of(text: str) -> Any:
    validated = Playbook().parse(text.encode())
    program, problems = validated.program, validated.problems
    assert program is not None, problems
    return program


def test_labels_follow_the_shape_of_the_tool() -> None:
    """PBK-017."""
    program = program_of(step("tool: [{kind: noop}, {x: {kind: noop}}, {name: y, kind: noop}]"))

    assert [task.label for task in program.steps["a"].tasks] == ["task_0", "x", "y"]
    assert [task.label for task in program.steps["b"].tasks] == ["b_task"]


def test_knobs_are_layered_and_policies_do_not_leak() -> None:
    """PBK-035 PBK-036."""
    program = program_of(
        playbook(
            "executor: {spec: {timeout: 5, pool: p, http: {retries: 1, proxy: x}, policy: {defaults: {timeout_s: 9}}}}\n"
            "workflow: [{step: a, spec: {timeout: 30s, http: {retries: 2}}, tool: {kind: http, url: x, spec: {timeout: 1m}}},"
            " {step: b, tool: {kind: shell, cmds: x}}]"
        )
    )

    assert program.steps["a"].tasks[0].spec == {"timeout": 60.0, "http": {"retries": 2, "proxy": "x"}}
    assert program.steps["b"].tasks[0].spec == {"timeout": 5.0}
    assert program.steps["a"].timeout == 30_000_000
