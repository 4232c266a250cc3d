"""Templates in a document: whether they are valid and read only what exists at their place (PBK-029, 146, 184)."""

from collections.abc import Iterable, Iterator

from perdure.dialects.playbook.document.cursor import Cursor
from perdure.dialects.playbook.state.task_errors import template_message
from perdure.expressions.jinja import Guard, Template, TemplateError, TemplateReads, has_template
from perdure.kernel.documents.problems import guess
from perdure.kernel.lazy_regex import lazy_regex

CONTROL = frozenset({"workload", "ctx", "args", "execution_id", "event", "steps", "fanin"})
FIELDS = frozenset(
    {
        *("workload", "ctx", "args", "execution_id", "steps", "iter", "results", "keychain"),
        *("_task", "_attempt", "_prev", "_idempotency_key"),
    }
)
CLAIM = (FIELDS - {"iter", "results", "_prev", "keychain"}) | {"__frame_max_rows", "__frame_key"}
POLICY = (FIELDS | {"outcome"}) - {"keychain"}
START = frozenset({"workload", "execution_id", "env"})  # only here is there an `env`
STATUS = r"""\b(?:outcome|output)(?:\.status\b|\[['"]status['"]\])"""
SUCCESS = r"""(?:'success'|"success")"""
_TEMPLATE = lazy_regex(r"(?s)\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}")
OLD_STATUS = lazy_regex(rf"{STATUS}\s*[!=]=\s*{SUCCESS}|{SUCCESS}\s*[!=]=\s*{STATUS}")


def check_guard(cursor: Cursor, scope: frozenset[str]) -> None:
    """A boolean, or a text with a template in it."""
    value = cursor.value
    if isinstance(value, bool):
        return
    if not isinstance(value, str):
        cursor.problem("PBK-029", f"{cursor.name} must be true, false or a template, not {value!r}")
        return
    if not has_template(value):
        hint = f'Write "{{{{ {value.strip()} }}}}".'
        cursor.problem("PBK-029", f"{cursor.name} is plain text, which would always be true", hint=hint)
        return
    try:
        _check_names(cursor, Guard(value).reads, scope)
        _check_old_status(cursor)
    except TemplateError as fault:
        cursor.problem("PBK-029", f"{cursor.name}: {template_message(fault)}")


def check_data(cursor: Cursor, scope: frozenset[str]) -> None:
    """A value whose texts may be templates."""
    template = Template(cursor.value)
    for fault in template.faults:
        cursor.problem("PBK-029", template_message(fault), *fault.path)
    if template.reads.names - scope:
        for text in _texts(cursor):
            _check_names(text, Template(text.value).reads, scope)


def check_workload(cursor: Cursor) -> None:
    """The workload is rendered from itself alone, before anything else exists (PBK-012)."""
    bare = frozenset(name for name in cursor.value if isinstance(name, str)) | {"job"}
    check_data(cursor, START | bare if cursor.report.is_io else START)


def is_plain_text(cursor: Cursor) -> bool:
    """Whether the value is a text without a template."""
    return isinstance(cursor.value, str) and not has_template(cursor.value)


def text_beside_templates(guard: str) -> bool:
    """Whether a guard is a text with templates in it, which is always true."""
    return "{%" not in guard and "{{" in guard and bool(_TEMPLATE.sub("", guard).strip())


def _texts(cursor: Cursor) -> Iterator[Cursor]:
    if isinstance(cursor.value, str):
        yield cursor
    elif isinstance(cursor.value, dict | list):
        for part in cursor.value if isinstance(cursor.value, dict) else range(len(cursor.value)):
            yield from _texts(cursor.at(part))


def _check_old_status(cursor: Cursor) -> None:
    if OLD_STATUS.search(cursor.value):
        hint = "Write `outcome.status == 'ok'`."
        cursor.problem("PBK-032", "an outcome's status is 'ok' or 'error', never 'success'", hint=hint)


def _check_names(cursor: Cursor, reads: TemplateReads, scope: frozenset[str]) -> None:
    for name in sorted(reads.names - scope):
        if name == "keychain":
            cursor.problem("PBK-184", "keychain exists only in the fields of a task")
        elif name == "vars":
            cursor.problem("PBK-032", "there are no vars", hint="Use ctx, or iter inside a loop.")
        elif "env" in scope and name == "ctx":
            hint = f"Readable: {_listed(scope)}."
            cursor.problem("PBK-012", "the workload is fixed before there is a ctx", hint=hint)
        elif "env" in scope and cursor.report.is_io:
            hint = f"Readable here: {_listed(scope)}. Give the value in the input, or let a step make it."
            cursor.warn("PBK-012", f"the workload cannot read {name!r}{guess(name, sorted(scope))}", hint=hint)
        elif not cursor.report.is_io:  # in that profile a bare name is looked up when it is needed
            cursor.warn(
                "PBK-146",
                f"there is no {name!r} here{guess(name, sorted(scope))}",
                hint=f"Readable here: {_listed(scope)}. Bare names need `executor.spec.compat: io`.",
            )


def _listed(scope: Iterable[str]) -> str:
    return ", ".join(sorted(scope, key=lambda name: (name.startswith("_"), name)))
