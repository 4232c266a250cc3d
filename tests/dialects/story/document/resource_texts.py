"""Resources for tests, and the problems that validation finds in them."""

from collections.abc import Iterable
from typing import Any

from perdure.dialects.story.document import validate
from perdure.dialects.story.plan.settings import DEFAULTS, Settings
from perdure.dialects.story.resources.kinds import RESOURCE_KINDS
from perdure.dialects.story.resources.resource import NO_RESOURCES, KnownResources, Resource, ResourceIndex
from perdure.kernel.documents.problems import Problem, Severity

HEAD = "apiVersion: bubustack.io/v1alpha1\nkind: Story\nmetadata: {name: tale}\nspec:\n"


def story(spec: str) -> str:
    """A Story of this spec, which is written in one line per member."""
    return HEAD + "".join(f"  {line}\n" for line in spec.strip().splitlines())


def steps(*written: str, also: str = "") -> str:
    """A Story of these steps, each in flow style."""
    return story("steps:\n" + "".join(f"- {step}\n" for step in written) + also)


def resource(kind: str, name: str, spec: Any, namespace: str = "", **metadata: Any) -> Resource:
    place = {"namespace": namespace} if namespace else {}
    head = {"apiVersion": RESOURCE_KINDS[kind].api_version, "kind": kind}
    return {**head, "metadata": {"name": name, **place, **metadata}, "spec": spec}


def template(**spec: Any) -> Resource:
    return resource("EngramTemplate", "t", {"version": "1.0.0", "supportedModes": ["job"], **spec})


def engram(**spec: Any) -> Resource:
    """The Engram `e` of the template `t`; `namespace` is its place, everything else its spec."""
    namespace = spec.pop("namespace", "")
    return resource("Engram", "e", {"templateRef": {"name": "t"}, **spec}, namespace)


def problems(text: str, known: KnownResources = NO_RESOURCES, settings: Settings = DEFAULTS) -> list[Problem]:
    return list(validate(text.encode(), known, settings).problems)


def errors(
    text: str, known: KnownResources = NO_RESOURCES, settings: Settings = DEFAULTS
) -> list[tuple[str, str, str]]:
    """Path, message and reason of every error."""
    reported = problems(text, known, settings)
    return [(problem.path, problem.message, problem.code) for problem in reported if problem.severity is Severity.ERROR]


def warnings(
    text: str, known: KnownResources = NO_RESOURCES, settings: Settings = DEFAULTS
) -> list[tuple[str, str, str]]:
    reported = problems(text, known, settings)
    return [
        (problem.path, problem.message, problem.code) for problem in reported if problem.severity is Severity.WARNING
    ]


def shelf(*resources: Resource, also: Iterable[Resource] = ()) -> ResourceIndex:
    return ResourceIndex([*resources, *also])
