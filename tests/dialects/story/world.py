"""A scripted world with one Story's run in it, and the runs it starts; see `tests.dialects.universe`.

Engrams are named by what they do: `echo` gives its inputs back, `fail` fails as its inputs say, and so on (`ENGRAMS`).
Resources that a Story refers to are made up as needed, unless the test brings its own.
"""

from typing import Any

from perdure.dialects.story.language import Story
from perdure.documents import read_documents
from perdure.kernel import inputs as i
from perdure.kernel.execution import Limits
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND
from perdure.kernel.outcomes import Cancelled, Failed
from perdure.services.story.engrams.shipped.materialize import materialize
from tests.dialects.universe import ENOUGH, Answer, Life, Universe, Work

Resource = dict[str, Any]

CORE, CATALOG = "bubustack.io/v1alpha1", "catalog.bubustack.io/v1alpha1"


def read(text: str) -> list[Resource]:
    """The resources of a YAML text."""
    return [document.data for document in read_documents(text.encode())]


def story(spec: str, name: str = "test", namespace: str = "default") -> Resource:
    """A Story from the YAML of its spec."""
    (data,) = read(spec)
    return {"apiVersion": CORE, "kind": "Story", "metadata": {"name": name, "namespace": namespace}, "spec": data}


def engram(name: str, namespace: str = "default", template: str = "", **spec: Any) -> Resource:
    metadata = {"name": name, "namespace": namespace}
    return {
        "apiVersion": CORE,
        "kind": "Engram",
        "metadata": metadata,
        "spec": {"templateRef": {"name": template or name}, **spec},
    }


def template(name: str, **spec: Any) -> Resource:
    fixed = {"version": "1.0.0", "supportedModes": ["job"]}
    return {"apiVersion": CATALOG, "kind": "EngramTemplate", "metadata": {"name": name}, "spec": fixed | spec}


def bundle(
    document: Resource,
    others: list[Resource] | None = None,
    settings: dict[str, Any] | None = None,
    *,
    missing: bool = False,
) -> bytes:
    """What a run of the Story is pinned to. `missing`: what nobody brought is left out, rather than made up."""
    held: dict[str, dict[str, Resource]] = {"Engram": {}, "EngramTemplate": {}, "Story": {}}
    grants = []
    for resource in others or []:
        name = resource["metadata"]["name"]
        if resource["kind"] == "ReferenceGrant":
            grants.append(resource)
        elif resource["kind"] == "EngramTemplate":
            held["EngramTemplate"][name] = resource
        else:
            held[resource["kind"]][f"{resource['metadata'].get('namespace', 'default')}/{name}"] = resource
    if not missing:
        for name in ENGRAMS:
            held["Engram"].setdefault(f"default/{name}", engram(name))
        for resource in list(held["Engram"].values()):
            template_name = resource["spec"]["templateRef"]["name"]
            held["EngramTemplate"].setdefault(template_name, template(template_name))
    return jsontext.canonical(
        {
            "story": document,
            "engrams": held["Engram"],
            "templates": held["EngramTemplate"],
            "stories": held["Story"],
            "grants": grants,
            "settings": settings or {},
        }
    )


def failure(**details: Any) -> Failed:
    """A structured failure as `engram_contract` has it."""
    message = details.pop("message", "it failed")
    return Failed("Engram.Error", message, details.pop("retryable", None), jsontext.encode(details))


def engrams() -> dict[str, Work]:
    """What the Engrams of the scenarios do. `flaky` fails so many times for each key, then works."""
    calls: dict[str, int] = {}

    def flaky(inputs: dict[str, Any]) -> Any:
        key = str(inputs.get("key", ""))
        calls[key] = calls.get(key, 0) + 1
        if calls[key] <= inputs.get("times", 1):
            return failure(exitClass=inputs.get("exitClass", "retry"), message=f"call {calls[key]}")
        return {"calls": calls[key], **inputs.get("output", {})}

    def slow(inputs: dict[str, Any]) -> Any:
        after = int(inputs.get("seconds", 1) * SECOND)
        return Answer(inputs.get("output", {}), after=after, stubborn=bool(inputs.get("stubborn")))

    def fail(inputs: dict[str, Any]) -> Any:
        return failure(**inputs)

    def say(inputs: dict[str, Any]) -> Any:
        return Answer(
            inputs.get("output", {}),
            after=int(inputs.get("seconds", 0) * SECOND),
            says=inputs.get("says", []),
            does=inputs.get("does", {}),
        )

    def shut(inputs: dict[str, Any]) -> Any:
        return Cancelled("the worker was shut down")

    return {
        "materialize": materialize,
        "echo": lambda inputs: inputs,
        "give": lambda inputs: inputs.get("result"),
        "fail": fail,
        "flaky": flaky,
        "slow": slow,
        "say": say,
        "shut": shut,
    }


ENGRAMS = tuple(engrams())


def providers() -> dict[str, Work]:
    def worker(work: Work) -> Work:
        return lambda arguments: work(arguments["inputs"])

    return {f"engram:{name}@1.0.0": worker(work) for name, work in engrams().items()}


class World(Universe):
    def __init__(
        self,
        document: str | Resource,
        inputs: Any = None,
        *,
        others: list[Resource] | None = None,
        settings: dict[str, Any] | None = None,
        options: dict[str, Any] | None = None,
        labels: dict[str, str] | None = None,
        work: dict[str, Work] | None = None,
        missing: bool = False,
        crash: bool = False,
        seed: int | None = None,
        slots: int = ENOUGH,
        limits: Limits | None = None,
    ) -> None:
        super().__init__(
            {"story": Story()},
            work={**providers(), **(work or {})},
            crash=crash,
            seed=seed,
            slots=slots,
            limits=limits,
        )
        resource = story(document) if isinstance(document, str) else document
        text = bundle(resource, others, settings, missing=missing)
        self.life: Life = self.start("story", text, inputs, {"name": "run", **(options or {})}, labels=labels)

    def run(self) -> Any:
        """Until the end; what is told of it."""
        self.settle()
        assert self.life.is_over, f"stuck: {self.show()['status']['stepStates']}"
        return self.show()

    def show(self) -> Any:
        return self.life.show()

    @property
    def status(self) -> Any:
        return self.show()["status"]

    @property
    def phases(self) -> dict[str, str]:
        return {name: state["phase"] for name, state in self.status["stepStates"].items()}

    @property
    def messages(self) -> dict[str, str]:
        return {name: state["message"] for name, state in self.status["stepStates"].items()}

    def tell(self, message: i.Input) -> Any:
        return self.ask(self.life, message)

    def steer(self, verb: str, **details: Any) -> Any:
        return self.tell(i.Steer(verb, jsontext.encode(details), by="operator"))

    def decide(self, step: str, state: str = "Approved", **rest: Any) -> Any:
        return self.steer("gate", step=step, state=state, **rest)

    def redrive(self, step: str = "", token: str = "again") -> Any:
        return self.tell(i.Reopen(jsontext.encode({"step": step, "token": token}), token, by="operator"))
