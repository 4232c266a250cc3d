"""`python`: code of the document, run by its own provider in a separate process (PBK-094).

The code may read a snapshot of the scopes as `context`. Only what it reads is sent: a loop over ten thousand elements
must not carry its collection ten thousand times.
"""

import ast
import base64
import binascii
import sys
from functools import lru_cache
from typing import Any

from perdure.dialects.playbook.document.cursor import Cursor
from perdure.dialects.playbook.document.texts import is_plain_text
from perdure.dialects.playbook.plan.program import Task
from perdure.dialects.playbook.state.task_errors import error
from perdure.dialects.playbook.state.values import Reader
from perdure.dialects.playbook.tools.kind import UNCHANGED, ToolCall, ToolKind, ToolResult, details_of, failure
from perdure.dialects.playbook.tools.scripts import check_script, kind_of_failure, with_folder
from perdure.dialects.playbook.values.template_scopes import gather
from perdure.expressions.jinja import TemplateReads
from perdure.kernel.outcomes import Failed, Outcome, Succeeded

PROVIDER = "playbook.python"
SNAPSHOT = frozenset({"workload", "ctx", "iter", "args", "execution_id", "_prev", "results"})


def _start(call: ToolCall) -> None:
    fields = call.fields
    script = fields.get("script")
    is_elsewhere = isinstance(script, dict)
    try:
        code = "" if is_elsewhere else source_of(fields)
    except ValueError as problem:
        call.fail(error("schema", f"code_b64: {problem}", source="python"))
        return
    named = fields.get("args") or {}
    if not isinstance(named, dict):
        call.fail(error("schema", "args must be a map of names to values", source="python"))
        return
    source = {"script": with_folder(call, script)} if is_elsewhere else {"code": code}
    arguments: dict[str, Any] = {**source, "names": named}
    promised = fields.get("assert") or {}
    absent = [name for name in promised.get("expects") or () if name not in named]
    if absent:
        call.fail(error("schema", f"the code expects {', '.join(absent)} in args", source="python"))
        return
    arguments |= {name: value for name in ("libs", "returns") if (value := {**promised, **fields}.get(name))}
    reads = EVERYTHING if is_elsewhere else _reads(code)
    if "args" in reads.names:
        arguments["token_args"] = call.makers["args"](None)
    if reads.snapshot:
        outside_of_loops: dict[str, Any] = {"iter": {}} if "iter" in reads.snapshot else {}
        arguments["snapshot"] = outside_of_loops | gather(
            call.makers, TemplateReads(dict.fromkeys(reads.snapshot & SNAPSHOT))
        )
    call.perform(PROVIDER, arguments, timeout=call.task.timeout)


def source_of(fields: dict[str, Any]) -> str:
    if fields.get("script") is not None:
        return str(fields["script"])
    if "code_b64" in fields:
        try:
            return base64.b64decode(fields["code_b64"], validate=True).decode()
        except (binascii.Error, UnicodeDecodeError) as problem:
            raise ValueError(str(problem)) from None
    return str(fields["code"])


def _scopes_of(task: Task) -> TemplateReads:
    """The scopes that the code reads by itself."""
    try:
        reads = EVERYTHING if "script" in task.fields else _reads(source_of(dict(task.fixed)))
    except ValueError:
        return TemplateReads()
    names = (reads.snapshot & SNAPSHOT) | (frozenset({"args"}) & reads.names)
    return TemplateReads(dict.fromkeys(sorted(names)))


class _Reads:
    def __init__(self, names: frozenset[str], snapshot: frozenset[str]) -> None:
        self.names = names
        self.snapshot = snapshot


EVERYTHING = _Reads(frozenset({"args"}), SNAPSHOT)  # for code that is not known yet


@lru_cache(maxsize=1024)
def _reads(code: str) -> _Reads:
    """Which names the code mentions, and which members of `context`; all of them if its use cannot be determined."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _Reads(frozenset(), frozenset())  # running it reports what is wrong
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    if "context" not in names:
        return _Reads(frozenset(names), frozenset())
    followed = [name for node in ast.walk(tree) if (name := _member(node)) is not None]
    uses = sum(isinstance(node, ast.Name) and node.id == "context" for node in ast.walk(tree))
    snapshot = frozenset(followed) if len(followed) == uses else SNAPSHOT
    return _Reads(frozenset(names), snapshot)


def _member(node: ast.AST) -> str | None:
    """`context["x"]` or `context.get("x", …)`."""
    match node:
        case ast.Subscript(value=ast.Name(id="context"), slice=ast.Constant(value=str(name))):
            return name
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="context"), attr="get"), args=[ast.Constant(value=str(name)), *_]
        ):
            return name
    return None


def _on_result(outcome: Outcome, text: Reader) -> ToolResult:
    if isinstance(outcome, Succeeded):
        return UNCHANGED
    code = outcome.code if isinstance(outcome, Failed) else ""
    kind = kind_of_failure(outcome, {})
    facts = details_of(outcome)
    name = code.rpartition(".")[2] if kind == "exception" else None
    trace = facts.get("traceback")
    helper = {"exception_type": name, "traceback": "\n".join(trace) if isinstance(trace, list) else trace}
    return ToolResult(failure(outcome, kind, name or code or None, source="python"), None, {"py": helper})


def _check(cursor: Cursor) -> None:
    if cursor.value.get("libs") is not None:
        _check_libraries(cursor.at("libs"))
    if "assert" in cursor.value and cursor.at("assert").has("a map", "PBK-094"):
        promised = cursor.at("assert")
        promised.closed(("expects", "returns"), "PBK-094", "'assert'")
        for name in ("expects", "returns"):
            if name in promised.value and promised.at(name).has("a list", "PBK-094"):
                _check_names(promised.at(name), "a name")
    if cursor.value.get("auth"):
        hint = "Write args: {token: '{{ keychain.NAME.token }}'}."
        cursor.at("auth").problem("PBK-020", "code gets credentials as args, from the keychain", hint=hint)
    check_script(cursor)


def _check_names(cursor: Cursor, expected: str) -> None:
    for item in cursor.items():
        if not (isinstance(item.value, str) and item.value):
            item.problem("PBK-094", f"{item.value!r} is not {expected}")


def _check_libraries(cursor: Cursor) -> None:
    """What `python` imports under chosen names: a module, or a member of a module (PBK-094)."""
    hint = "Write libs: {name: module}, or libs: {name: {from: module, import: name}}."
    if is_plain_text(cursor) or not isinstance(cursor.value, dict | list | str):
        cursor.problem("PBK-094", "'libs' must be a map", hint=hint)
        return
    if isinstance(cursor.value, list):
        if any(name in sys.stdlib_module_names for name in cursor.value if isinstance(name, str)):
            cursor.problem("PBK-094", "'libs' must be a map: a list imports nothing, it names packages", hint=hint)
        _check_names(cursor, "a package that must be installed")
    for name in cursor.value if isinstance(cursor.value, dict) else ():
        item = cursor.at(name)
        if isinstance(item.value, dict):
            if not item.value or not set(item.value) <= {"from", "import"}:
                item.problem("PBK-094", "a library has 'from' and 'import', or one of them", hint=hint)
            elif not all(isinstance(module, str) and module for module in item.value.values()):
                item.problem("PBK-094", "'from' and 'import' of a library are names", hint=hint)
        elif not (isinstance(item.value, str) and item.value):
            item.problem("PBK-094", f"a library is the name of a module, not {item.value!r}", hint=hint)


KIND = ToolKind(
    _start,
    _on_result,
    required=(("script", "code", "code_b64"),),
    fields=frozenset({"script", "code", "code_b64", "libs", "args", "assert", "auth"}),
    text=frozenset({"script", "code", "code_b64"}),
    provider=PROVIDER,
    reads=_scopes_of,
    check=_check,
)
