"""Write the types of the API for the console, from the table of routes: `python -m tools.console_types`.

`tests/console/test_types.py` compares what is written with what the table says.
"""

import json
from pathlib import Path
from typing import Any

from perdure.server.openapi import describe
from perdure.server.routes import ROUTES

PAGE = Path(__file__).parents[1] / "console" / "src" / "api" / "types.ts"
USED = ("/api/v1/", "/session", "/version")
WORKERS = "/worker/"
HEAD = """// Written by tools/console_types.py from the server's table of routes: do not edit.

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };
export type Role = "viewer" | "operator" | "author" | "admin" | "worker";
"""


def typescript() -> str:
    description = describe(ROUTES, "")
    paths = {
        path: about for path, about in description["paths"].items() if path.startswith(USED) and WORKERS not in path
    }
    parts, routes, roles = [HEAD], [], []
    named: set[str] = set()
    for path, methods in paths.items():
        for method, operation in methods.items():
            key = f"{method.upper()} {path}"
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            answers = [
                kind.get("application/json", {}).get("schema", {})
                for status, about in operation["responses"].items()
                if status < "300" and (kind := about.get("content"))
            ]
            answer = " | ".join(dict.fromkeys(_type(schema, named) for schema in answers)) or "null"
            query = [about for about in operation["parameters"] if about["in"] == "query"]
            members = "; ".join(f"{_name(about['name'])}?: {_type(about['schema'], named)}" for about in query)
            routes.append(
                f"  {json.dumps(key)}: {{ query: {f'{{ {members} }}' if query else 'NoQuery'};"
                f" body: {'undefined' if body is None else _type(body, named)}; answer: {answer} }};"
            )
            roles.append(f"  {json.dumps(key)}: {json.dumps(operation.get('x-role', 'viewer'))},")
    schemas = description["components"]["schemas"]
    written: set[str] = set()
    while missing := sorted(named - written):
        for name in missing:
            written.add(name)
            parts.append(_interface(name, schemas[name], named))
    parts.append("export type NoQuery = Record<never, never>;\n")
    parts.append("export interface Routes {\n" + "\n".join(routes) + "\n}\n")
    parts.append("/** The role that each route asks for. */\n")
    parts.append("export const ROLES: Record<keyof Routes, Role> = {\n" + "\n".join(roles) + "\n};\n")
    return "\n".join(parts)


def _interface(name: str, schema: dict[str, Any], named: set[str]) -> str:
    if schema.get("type") != "object" or "properties" not in schema:
        return f"export type {name} = {_type(schema, named)};\n"
    required = set(schema.get("required", ()))
    members = [
        f"  {_name(member)}{'' if member in required else '?'}: {_type(about, named)};"
        for member, about in schema["properties"].items()
    ]
    return f"export interface {name} {{\n" + "\n".join(members) + "\n}\n"


def _type(schema: dict[str, Any], named: set[str]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        named.add(name)
        return str(name)
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_type(part, named) for part in schema["anyOf"]))
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    match schema.get("type"):
        case "string":
            return "string"
        case "integer" | "number":
            return "number"
        case "boolean":
            return "boolean"
        case "null":
            return "null"
        case "array":
            inner = _type(schema.get("items", {}), named)
            return f"({inner})[]" if "|" in inner else f"{inner}[]"
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            return f"Record<string, {_type(schema['additionalProperties'], named)}>"
        case "object":
            return "Record<string, Json>"
        case _:
            return "Json"


def _name(member: str) -> str:
    return member if member.isidentifier() else json.dumps(member)


if __name__ == "__main__":
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(typescript(), "utf-8")
