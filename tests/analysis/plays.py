"""Random documents, played on the kernel with random outcomes, and what contradicts the findings on them.

`python -m tests.analysis.plays LANGUAGE SECONDS SEED` plays one after the other and prints each contradiction.
"""

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import yaml

from perdure.analysis.soundness import find_defects
from perdure.dialects.flow.state import events as f
from perdure.dialects.flow.state.body import Body, MiddlewareScope
from perdure.dialects.flow.state.folding import evolve
from perdure.dialects.playbook.state import events as p
from perdure.dialects.story import Story
from perdure.kernel.codec import decode_turns
from perdure.kernel.dialect import Dialect
from perdure.kernel.documents.problems import Severity
from perdure.kernel.documents.validation import ValidationContext
from perdure.kernel.execution import Limits
from perdure.kernel.graphs.net import Certainty, Defect, DefectKind
from perdure.kernel.graphs.run_trace import VisitStatus, trace_turns
from perdure.kernel.json_values.values import RunId
from perdure.kernel.outcomes import Cancelled, Failed
from tests.analysis.random_documents import FlowAuthor, playbook, story
from tests.dialects.flow.world import Answer
from tests.dialects.flow.world import World as FlowWorld
from tests.dialects.playbook.cases import tools
from tests.dialects.playbook.world import World as PlaybookWorld
from tests.dialects.story.test_random import CHILD
from tests.dialects.story.world import World as StoryWorld
from tests.dialects.story.world import engram, template
from tests.dialects.story.world import story as story_of

K = DefectKind
WAITS = {K.NO_SENDER, K.UNBOUNDED_WAIT, K.DEADLOCK}
ENDLESS = {K.ENDLESS_LOOP, K.UNBOUNDED_TOKENS, K.UNBOUNDED_RETRY}
DEAD = {K.DEAD_STEP, K.FINAL_NEVER, K.HANDLER_UNREACHABLE, K.ADMISSION_NEVER}
MAPS = [
    CHILD,
    story_of("steps: [{name: stops, type: stop, with: {mode: failure}}]", "failing"),
    engram("map-reduce-adapter"),
    template("map-reduce-adapter"),
]


@dataclass
class Play:
    """What one run did, in the words of findings."""

    is_over: bool
    used: set[Any] = field(
        default_factory=set
    )  # (kind, step or place) of what `DEAD` and `JOIN_NEVER` say never happens
    waiting: set[str] = field(default_factory=set)  # steps that wait for ever
    is_endless: bool | None = False  # a limit of the engine ended it; None: that cannot be told
    stranded: set[str] = field(default_factory=set)
    has_no_match: bool = False
    is_unsure: bool = False  # something ended it that findings do not count: a limit


def contradictions(findings: list[Defect], play: Play) -> Iterator[str]:
    kinds = {defect.kind for defect in findings}
    steps = {kind: {defect.step for defect in findings if defect.kind is kind} for kind in kinds}
    certain = {defect.kind for defect in findings if defect.certainty is Certainty.WILL}
    for defect in findings:
        if (
            defect.kind in DEAD | {K.JOIN_NEVER}
            and {(defect.kind, defect.step), (defect.kind, defect.place)} & play.used
        ):
            yield f"it happens: {defect}"
    is_open = K.UNDECIDED in kinds
    waits = set().union(*(steps.get(kind, set()) for kind in WAITS | {K.ADMISSION_NEVER}))
    if play.is_endless and not kinds & ENDLESS and not is_open:
        yield "not foreseen: endless"
    is_open = is_open or bool(play.is_endless)  # what follows where the engine ends a loop is not judged (ANA-009)
    if not play.is_over and not is_open and not play.waiting & waits:
        yield f"not foreseen: waits at {play.waiting}"
    if play.stranded - steps.get(K.STRANDED, set()) - steps.get(K.JOIN_NEVER, set()) - waits and not is_open:
        yield f"not foreseen: stranded at {play.stranded}"
    if play.has_no_match and K.NO_MATCH not in kinds and not is_open:
        yield "not foreseen: no arc matches"
    if play.is_over and K.DEADLOCK in certain:
        yield "a deadlock in every run did not happen"
    if play.is_over and certain & ENDLESS and play.is_endless is False:
        yield "an endless run ended"
    if play.is_over and K.STRANDED in certain and not play.stranded and not play.is_unsure:
        yield "nothing was stranded"
    if play.is_over and K.NO_MATCH in certain and not play.has_no_match and not play.is_unsure:
        yield "every arc matched"
    if certain & {K.NO_SENDER, K.TIMEOUT_INVERTED, K.EFFECT_UNKEYED, K.UNDECIDED}:
        yield f"is never certain: {certain}"


def findings_of(dialect: Dialect, program: Any) -> list[Defect]:
    net = dialect.net(program)
    assert net is not None
    return find_defects(net, most_states=3_000)


def visited(dialect: Dialect, program: Any, rows: Iterable[bytes]) -> set[str]:
    """The nodes that were used, as the graph of the document calls them."""
    trace = trace_turns(dialect.tracer(program), (turn for row in rows for turn in decode_turns(dialect, row)))
    return {visit.node for visit in trace.visits if visit.status is not VisitStatus.SKIPPED}


# Playbooks.


def play_playbook(seed: int) -> Iterator[tuple[list[Defect], Play, Any]]:
    random = Random(seed)
    text = playbook(random)
    dialect = PlaybookWorld(text, work=tools()).dialect
    parsed = dialect.parse(text)
    assert parsed.program is not None, parsed.problems
    findings = findings_of(dialect, parsed.program)
    for workload, order, patches in ((0, None, False), (1, None, True), (1, seed, False), (0, seed, True)):
        world = PlaybookWorld(text, {"w": workload}, work=tools(), seed=order)
        world.settle()
        if patches and not world.is_over:
            world.patch({"x": random.choice([0, 1, 2]), "y": 1})
            world.settle()
        yield findings, _read_playbook(world, parsed.program), text


def _read_playbook(world: PlaybookWorld, program: Any) -> Play:
    turns = [turn for row in world.rows for turn in decode_turns(world.dialect, row)]
    history = world.dialect.history(RunId("r"), turns)
    started = {event["step"] for event in history if event["event_type"] == "step.started"}
    used: set[Any] = {(kind, step) for step in started for kind in (K.DEAD_STEP, K.FINAL_NEVER)}
    answers = [event for event in history if event["event_type"] == "policy.admit.evaluated"]
    used |= {(K.ADMISSION_NEVER, event["step"]) for event in answers if event["payload"]["allow"]}
    used |= {(K.JOIN_NEVER, event.step) for event in world.events if isinstance(event, p.JoinCompleted)}
    body, shown = world.execution.body, world.show()
    failures = shown["failures"]
    exhausted = [failure for failure in failures if failure["error"]["code"] in ("STEP_RUNS", "TASK_VISITS")]
    play = Play(world.is_over, used, waiting={token.step for token in body.tokens.values()})
    # A time limit would have ended what is endless here, where nothing takes any time.
    limited = {name for name, step in program.steps.items() if step.timeout is not None or step.deadline is not None}
    loops = [item for item in exhausted if item["error"]["code"] != "TASK_VISITS" or item["step"] not in limited]
    play.is_endless = bool(loops) if program.timeout is None or not loops else None
    play.is_unsure = bool(failures) or shown["status"] in ("failed", "cancelled")
    if not play.is_unsure:
        play.stranded = {token.step for token in body.stranded}
    # Where the step-run has failed, that is what is wrong.
    failed = Counter(failure["step_run_id"] for failure in failures)
    play.has_no_match = any(
        failure["error"]["code"] == "NO_MATCHING_ARC" and failed[failure["step_run_id"]] == 1 for failure in failures
    )
    return play


# Stories.


def play_story(seed: int) -> Iterator[tuple[list[Defect], Play, Any]]:
    random = Random(seed)
    document = story(random)
    parsed = Story().parse(yaml.safe_dump_all([document, *MAPS]).encode(), ValidationContext(chosen="random"))
    errors = [problem for problem in parsed.problems if problem.severity is Severity.ERROR]
    assert not errors, errors
    branches = [branch for step in _all_steps(document) for branch in step.get("with", {}).get("steps", ())]
    wrong = {
        step["name"] for step in (*_all_steps(document), *branches) if step.get("if") == "maybe"
    }  # fails without starting
    findings: list[Defect] | None = None
    for order, go, decides in ((None, True, False), (seed, False, False), (None, True, True), (seed, True, True)):
        inputs = {"go": go, "n": int(go), "list": [1, 2], "span": "1s", "mode": "failure" if go else "success"}
        world = StoryWorld(document, inputs, others=MAPS, seed=order)
        world.settle()
        life = world.life
        for _ in range(20 if decides else 0):
            paused = [name for name, state in world.status["stepStates"].items() if state["phase"] == "Paused"]
            gates = [
                step["name"] for step in _all_steps(document) if step.get("type") == "gate" and step["name"] in paused
            ]
            if not gates or life.is_over:
                break
            world.decide(random.choice(gates), random.choice(["Approved", "Rejected"]))
            world.settle()
        program = life.execution.program
        if findings is None:
            findings = findings_of(life.dialect, program)
        nodes = visited(life.dialect, program, life.rows) - wrong
        play = Play(life.is_over, {(kind, node) for node in nodes for kind in DEAD})
        states = {} if life.is_over else world.status["stepStates"]
        play.waiting = {name for name, state in states.items() if state["phase"] in ("Paused", "Running")}
        yield findings, play, document


def _all_steps(document: Any) -> list[Any]:
    return [step for block in ("steps", "compensations", "finally") for step in document["spec"][block]]


# Flows.


def play_flow(seed: int) -> Iterator[tuple[list[Defect], Play, Any]]:
    random = Random(seed)
    document = FlowAuthor(random).document()

    def work(arguments: dict[str, Any], value: Any) -> Answer:
        code = random.choice(["F", "G", "Other"])
        return Answer(1, failure=Failed(code, "m") if arguments["fails"] and random.random() < 0.7 else None)

    findings: list[Defect] | None = None
    for input in (1, [1, 2], None):
        world = FlowWorld(document, input, work={"work": work}, limits=Limits(slice=100, moves=300))
        program = world.dialect.parse(world.text).program
        assert program is not None, world.dialect.parse(world.text).problems
        if findings is None:
            findings = findings_of(world.dialect, program)
        state = world.execution.state
        while not state.status.is_final and world.queue and len(world.rows) < 200:
            world.turn()
        is_stopped = isinstance(state.outcome, Cancelled)  # by limits of the engine: of moves, of values
        is_endless: bool | None = is_stopped or "without any outside input" in str(state.outcome)
        if not state.status.is_final or (is_endless and "timeout/v1" in world.text.decode()):
            is_endless = None  # it goes on with waits and tasks, or a time limit would end it
        play = Play(True, set(_used_in_flow(world, program)), is_endless=is_endless)
        yield findings, play, document


def _place(site: str) -> tuple[str, ...]:
    return tuple(piece.replace("~1", "/").replace("~0", "~") for piece in site.split("/")[1:])


def _used_in_flow(world: FlowWorld, program: Any) -> Iterator[Any]:
    for node in visited(world.dialect, program, world.rows):
        yield K.DEAD_STEP, _place(node)
    body = Body(program)
    for event in world.events:
        match event:
            case f.StepCaught(frame=number, clause=clause):
                frame = body.frames[number]
                assert frame.step is not None
                step = program.flows[frame.flow].steps[frame.step.name]
                yield K.HANDLER_UNREACHABLE, _place(f"{step.site}/catch/{clause}")
            case f.CleanupBegan(frame=number):
                scope = next(
                    scope for scope in reversed(body.frames[number].stack) if isinstance(scope, MiddlewareScope)
                )
                yield K.FINAL_NEVER, _place(scope.site)
        evolve(body, event)


PLAYERS = {"playbook": play_playbook, "story": play_story, "flow": play_flow}


def contradictions_of(language: str, seed: int) -> list[str]:
    """What one random document and its plays say against its findings."""
    return [
        f"{text}\n  document: {document}\n  findings: {[str(finding.kind) for finding in findings]}"
        for findings, play, document in PLAYERS[language](seed)
        for text in contradictions(findings, play)
    ]


def main(language: str, seconds: float, seed: int) -> None:
    end, count = time.process_time() + seconds, 0
    while time.process_time() < end:
        for text in contradictions_of(language, seed)[:1]:
            print(f"== {language} {seed}: {text}", flush=True)
        seed, count = seed + 1, count + 1
        if count % 500 == 0:
            print(f"{count} documents, up to seed {seed}", flush=True)
    print(f"{count} documents, up to seed {seed}")


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
