"""Templates in a document: is the text one, and does it read only what exists where it stands? (PBK-029, 146, 184)"""

from collections.abc import Iterable, Iterator

from perdure.dialects.playbook.document.cursor import Cursor, Found
from perdure.dialects.playbook.state.task_errors import said
from perdure.expressions.jinja import Guard, Reads, Template, TemplateError, has_template
from perdure.kernel.lazy_regex import lazy_regex

CONTROL = frozenset({"workload", "ctx", "args", "execution_id", "event", "steps", "fanin"})
FIELDS = frozenset(
    {
        *("workload", "ctx", "args", "execution_id", "steps", "iter", "results", "keychain"),
        *("_task", "_attempt", "_prev", "_idempotency_key"),
    }
)
POLICY = (FIELDS | {"outcome"}) - {"keychain"}
START = frozenset({"workload", "execution_id", "env"})
STATUS = r"""\b(?:outcome|output)(?:\.status\b|\[['"]status['"]\])"""
SUCCESS = r"""(?:'success'|"success")"""
OLD_STATUS = lazy_regex(rf"{STATUS}\s*[!=]=\s*{SUCCESS}|{SUCCESS}\s*[!=]=\s*{STATUS}")


def guard(look: Cursor, scope: frozenset[str]) -> None:
    """A boolean, or a text with a template in it."""
    value = look.value
    if isinstance(value, bool):
        return
    if not isinstance(value, str):
        look.problem("PBK-029", f"{look.name} must be true, false or a template, not {value!r}")
        return
    if not has_template(value):
        hint = f'Write "{{{{ {value.strip()} }}}}".'
        look.problem("PBK-029", f"{look.name} is plain text, which would always be true", hint=hint)
        return
    try:
        _check_names(look, Guard(value).reads, scope)
        _check_words(look)
    except TemplateError as fault:
        look.problem("PBK-029", f"{look.name}: {said(fault)}")


def data(look: Cursor, scope: frozenset[str]) -> None:
    """A value whose texts may be templates."""
    template = Template(look.value)
    for fault in template.faults:
        look.findings.found.append(Found("PBK-029", said(fault), (*look.path, *fault.path)))
    if template.reads.names - scope:
        for text in _texts(look):
            _check_names(text, Template(text.value).reads, scope)


def plain(look: Cursor) -> bool:
    """Whether the value is a text that no template is in."""
    return isinstance(look.value, str) and not has_template(look.value)


def _texts(look: Cursor) -> Iterator[Cursor]:
    if isinstance(look.value, str):
        yield look
    elif isinstance(look.value, dict | list):
        for part in look.value if isinstance(look.value, dict) else range(len(look.value)):
            yield from _texts(look.at(part))


def _check_words(look: Cursor) -> None:
    if OLD_STATUS.search(look.value):
        hint = "Write `outcome.status == 'ok'`."
        look.problem("PBK-032", "an outcome's status is 'ok' or 'error', never 'success'", hint=hint)


def _check_names(look: Cursor, reads: Reads, scope: frozenset[str]) -> None:
    for name in sorted(reads.names - scope):
        if name == "keychain":
            look.problem("PBK-184", "keychain exists only in the fields of a task")
        elif name == "vars":
            look.problem("PBK-032", "there are no vars", hint="Use ctx, or iter inside a loop.")
        elif name == "ctx" and scope is START:
            look.problem("PBK-012", "the workload is fixed before there is a ctx", hint=f"Readable: {_listed(scope)}.")
        elif not look.findings.is_io:  # there a bare name is looked up when it is needed
            look.warn("PBK-146", f"nothing is called {name!r} here", hint=f"Readable here: {_listed(scope)}.")


def _listed(scope: Iterable[str]) -> str:
    return ", ".join(sorted(scope, key=lambda name: (name.startswith("_"), name)))
