"""`postgres`, `duckdb` and `sqlite`: one task is one transaction, its result is a table (PBK-097)."""

from typing import Any

from perdure.dialects.playbook.state.values import Reader
from perdure.dialects.playbook.tools.kind import ToolCall, ToolKind, ToolResult, details_of, failure
from perdure.dialects.playbook.tools.scripts import check_script, failure_code, kind_of_failure, with_folder
from perdure.kernel.outcomes import Outcome, Succeeded

TEXTS = ("command", "commands", "query", "command_b64", "commands_b64", "query_b64", "script")

_KINDS = {
    "BadArguments": "schema",
    "BadStatement": "client_error",
    "Broken": "server_error",
    "Busy": "db_timeout",
    "Connection": "db_connection",
    "Constraint": "db_constraint",
    "Deadlock": "db_deadlock",
    "Denied": "auth",
    "Full": "storage_quota",
    "MissingExtra": "client_error",
    "NotFound": "not_found",
    "ServerTimeout": "db_timeout",
    "Timeout": "timeout",
    "TooLarge": "limit",
    "Unavailable": "storage_access",
    "Forbidden": "storage_access",
}


def _database(name: str, connection: tuple[str, ...]) -> ToolKind:
    """The kind of this name: `connection` are the fields that say where the database is."""

    def start(call: ToolCall) -> None:
        fields = call.fields
        values = {field: fields[field] for field in (*TEXTS, "auth", "params", *connection) if field in fields}
        arguments: dict[str, Any] = {field: value for field, value in values.items() if value is not None}
        if "script" in arguments:
            arguments["script"] = with_folder(call, arguments["script"])
        if "params" not in arguments and fields.get("args"):
            arguments["params"] = fields["args"]  # a script has no other way to receive values (PBK-092)
        timeout = call.task.spec.get("timeout")
        if timeout is not None:
            arguments["timeout"] = timeout
        if call.task.spec.get("each_statement") is True:
            arguments["each_statement"] = True
        call.perform(name, arguments)

    def on_result(outcome: Outcome, text: Reader) -> ToolResult:
        state = details_of(outcome).get("sqlstate")
        extras = {"pg": {"code": state, "sqlstate": state}} if name == "postgres" else {}
        if isinstance(outcome, Succeeded):
            return ToolResult(extras=extras)
        kind = kind_of_failure(outcome, _KINDS)
        return ToolResult(failure(outcome, kind, state or failure_code(outcome), source=name), None, extras)

    return ToolKind(
        start,
        on_result,
        required=(TEXTS,),
        fields=frozenset({*TEXTS, "auth", "params", "args", *connection}),
        settings=("each_statement",),
        text=frozenset({"script"}),
        provider=name,
        check=check_script,
    )


POSTGRES = _database("postgres", ("dsn", "host", "port", "user", "password", "dbname"))
DUCKDB = _database("duckdb", ("database",))
SQLITE = _database("sqlite", ("database",))
