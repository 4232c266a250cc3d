"""What is wrong with a template that parses: functions it may not call, roots it may not read. Lists every problem."""

from collections.abc import Iterable

from perdure.expressions.gotemplate.environment import KNOWN_ROOTS, Environment
from perdure.expressions.gotemplate.references import Mention
from perdure.expressions.problems import Finding
from perdure.expressions.source import Source


def check(mentions: Iterable[Mention], source: Source, environment: Environment) -> tuple[Finding, ...]:
    findings = []
    for mention in mentions:
        if isinstance(mention.what, str):
            problem = _refuse_function(mention.what, mention.offset, source, environment)
        else:
            problem = _refuse_root(mention.what[0], environment) if mention.what else None
        if problem is not None:
            findings.append(Finding.at(source, mention.offset, problem))
    return tuple(findings)


def _refuse_function(name: str, offset: int, source: Source, environment: Environment) -> str | None:
    problem = environment.library.refuse(name)
    follows = source.text[offset + len(name) : offset + len(name) + 1]
    if problem is not None and name not in environment.library.denied and follows in (".", "["):
        return f"unknown context {name!r} is not allowed for {environment.scope} templates"
    return problem


def _refuse_root(root: str | int, environment: Environment) -> str | None:
    if environment.allows(root):
        return None
    unknown = "" if root in KNOWN_ROOTS else "unknown "
    return f"{unknown}context {root!r} is not allowed for {environment.scope} templates"
