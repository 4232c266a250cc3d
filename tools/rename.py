#!/usr/bin/env python3
"""Renames modules, classes, functions and variables of Perdure exactly, in code, tests and pages.

Run it in the root of the repository with a table, one rename per line:

    module  perdure.a.b             perdure.a.c    moves a module or package; imports and mentions follow
    merge   perdure.a.small         perdure.a.user a small module goes into the module that uses it
    symbol  perdure.a.b:Class       NewName        a class, function or constant
    symbol  perdure.a.b:Class.name  new_name       a method, field or attribute
    family  perdure.a,tests.a:name  new_name       a method in all classes of these packages (a protocol and who has it)
    local   perdure.a.b:Class.method.name  new     a parameter or variable of a function; keyword arguments follow

Lines are carried out in order, later ones use the new names; `#` begins a comment. What is not there any more is
reported and skipped. References are found by the language server of basedpyright (`pip install basedpyright`), which
must be on PATH. Names in quoted annotations are not renamed: mypy tells. Afterwards run `make fix` and `make quick`.
"""

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import unquote, urlparse

ROOT = Path.cwd()
SERVER = "basedpyright-langserver"
CODE = ("src", "tests", "bench", "examples")
TEXT = {".py", ".md", ".toml", ".txt", ".in", ".sh", ".yaml", ".yml", ".json", ".cfg", ".ini", ""}
UNTOUCHED = ("tools/", "requirements/dev.lock", "tests/architecture/frozen.json")
FROZEN_LINE = re.compile(r"getLogger\(|ENTRY_POINTS")

Function = ast.FunctionDef | ast.AsyncFunctionDef
Place = tuple[int, int]
"""Line, counted from 1, and column in characters."""


class CannotRename(Exception):
    """One line of the table that cannot be carried out."""


# Files


def module_file(module: str) -> Path:
    base = (ROOT / "src" if module.split(".")[0] == "perdure" else ROOT) / module.replace(".", "/")
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.exists():
            return path
    raise CannotRename(f"there is no module {module}")


def text_files() -> Iterator[tuple[Path, str]]:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path.is_file() and path.suffix in TEXT and not name.startswith(UNTOUCHED):
            try:
                yield path, path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue


def git(*arguments: str | Path) -> None:
    subprocess.run(["git", *map(str, arguments)], cwd=ROOT, check=True)


# The language server


class LanguageServer:
    def __init__(self) -> None:
        program = shutil.which(SERVER)
        if program is None:
            sys.exit(f"{SERVER} is not on PATH; install it with: pip install basedpyright")
        self._process = subprocess.Popen([program, "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._last_id = 0
        self._answers: dict[int, Any] = {}
        self._news = threading.Condition()
        self._open: dict[str, int] = {}
        threading.Thread(target=self._read, daemon=True).start()
        root = ROOT.as_uri()
        folders = [{"uri": root, "name": "perdure"}]
        workspace = {"configuration": True, "workspaceFolders": True, "workspaceEdit": {"documentChanges": True}}
        self.ask(
            "initialize",
            {
                "processId": os.getpid(),
                "rootUri": root,
                "workspaceFolders": folders,
                "capabilities": {"workspace": workspace},
            },
        )
        self.notify("initialized", {})

    def ask(self, method: str, params: Any, timeout: float = 300) -> Any:
        self._last_id += 1
        number = self._last_id
        self._send({"id": number, "method": method, "params": params})
        with self._news:
            if not self._news.wait_for(lambda: number in self._answers, timeout):
                raise CannotRename(f"the language server did not answer {method}")
            answer = self._answers.pop(number)
        if "error" in answer:
            raise CannotRename(answer["error"]["message"])
        return answer["result"]

    def notify(self, method: str, params: Any) -> None:
        self._send({"method": method, "params": params})

    def open(self, path: Path) -> str:
        uri = path.as_uri()
        if uri not in self._open:
            self._open[uri] = 1
            document = {"uri": uri, "languageId": "python", "version": 1, "text": path.read_text(encoding="utf-8")}
            self.notify("textDocument/didOpen", {"textDocument": document})
        return uri

    def changed(self, paths: list[Path]) -> None:
        for path in paths:
            uri = path.as_uri()
            if uri in self._open:
                self._open[uri] += 1
                document = {"uri": uri, "version": self._open[uri]}
                changes = [{"text": path.read_text(encoding="utf-8")}]
                self.notify("textDocument/didChange", {"textDocument": document, "contentChanges": changes})
        changed = [{"uri": path.as_uri(), "type": 2} for path in paths]
        self.notify("workspace/didChangeWatchedFiles", {"changes": changed})

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def wait_until_indexed(self) -> None:
        """References are complete once their number stops growing."""
        path = module_file("perdure.kernel.json_values.values")
        line, column = definition(path, "Ref")
        position = {"line": line - 1, "character": column}
        request = {
            "textDocument": {"uri": self.open(path)},
            "position": position,
            "context": {"includeDeclaration": True},
        }
        before = -1
        for _ in range(60):
            references = self.ask("textDocument/references", request) or []
            files = len({reference["uri"] for reference in references})
            if files > 15 and files == before:
                return
            before = files
            time.sleep(1)

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        while True:
            length = 0
            while (line := self._process.stdout.readline()) not in (b"\r\n", b"\n"):
                if not line:
                    return
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            message = json.loads(self._process.stdout.read(length))
            if "method" in message and "id" in message:
                self._send({"id": message["id"], "result": self._reply(message)})
            elif "id" in message:
                with self._news:
                    self._answers[message["id"]] = message
                    self._news.notify_all()

    def _reply(self, request: Any) -> Any:
        if request["method"] != "workspace/configuration":
            return None
        analysis = {
            "diagnosticMode": "openFilesOnly",
            "typeCheckingMode": "off",
            "include": list(CODE),
            "extraPaths": ["src", "."],
        }
        sections = {
            "python": {"pythonPath": sys.executable, "analysis": analysis},
            "basedpyright": {"analysis": analysis},
            "basedpyright.analysis": analysis,
            "python.analysis": analysis,
        }
        return [sections.get(item.get("section"), {}) for item in request["params"]["items"]]


_server: LanguageServer | None = None


def server() -> LanguageServer:
    """Started when the first line needs it."""
    global _server
    if _server is None:
        _server = LanguageServer()
        _server.wait_until_indexed()
    return _server


def restart_server() -> None:
    """After files have moved; it reads everything again."""
    global _server
    if _server is not None:
        _server.stop()
        _server = None


# Symbols, families and locals


def definition(path: Path, qualified_name: str) -> Place:
    """Where a name is defined: a class, function, method, field, `self` attribute, parameter or variable."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    node: ast.AST = ast.parse(text)
    *owners, name = qualified_name.split(".")
    for owner in owners:
        node = _child(node, owner) or _missing(path, qualified_name)
    child = _child(node, name)
    if child is not None:
        keyword = "class" if isinstance(child, ast.ClassDef) else "def"
        line = lines[child.lineno - 1]
        return child.lineno, line.index(name, line.index(keyword) + len(keyword))
    for candidate in [*_parameters(node), *ast.walk(node)]:
        place = _binding(candidate, name, lines)
        if place is not None:
            return place
    return _missing(path, qualified_name)


def _missing(path: Path, name: str) -> NoReturn:
    raise CannotRename(f"there is no {name} in {path.relative_to(ROOT)}")


def _child(node: ast.AST, name: str) -> ast.ClassDef | Function | None:
    pending = list(ast.iter_child_nodes(node))
    while pending:
        child = pending.pop(0)
        if isinstance(child, ast.ClassDef | Function):
            if child.name == name:
                return child
        elif isinstance(child, ast.stmt | ast.ExceptHandler):
            pending += ast.iter_child_nodes(child)
    return None


def _parameters(node: ast.AST) -> list[ast.arg]:
    if not isinstance(node, Function):
        return []
    parameters = node.args
    rest = [argument for argument in (parameters.vararg, parameters.kwarg) if argument is not None]
    return [*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs, *rest]


def _binding(node: ast.AST, name: str, lines: list[str]) -> Place | None:
    match node:
        case ast.arg(arg=bound) | ast.Name(id=bound, ctx=ast.Store()) if bound == name:
            return node.lineno, _characters(lines[node.lineno - 1], node.col_offset)
        case ast.Attribute(value=ast.Name(id="self"), attr=bound, ctx=ast.Store()) if bound == name:
            assert node.end_lineno is not None and node.end_col_offset is not None
            return node.end_lineno, _characters(lines[node.end_lineno - 1], node.end_col_offset) - len(name)
        case ast.ExceptHandler(name=bound) | ast.MatchAs(name=bound) if bound == name:
            match = re.search(rf"\bas {re.escape(name)}\b|\b{re.escape(name)}\b", lines[node.lineno - 1])
            return (node.lineno, match.end() - len(name)) if match else None
    return None


def _characters(line: str, offset: int) -> int:
    return len(line.encode()[:offset].decode())


def rename_symbol(where: str, new: str) -> str:
    module, _, name = where.partition(":")
    path = module_file(module)
    line, column = definition(path, name)
    uri = server().open(path)
    position = {"line": line - 1, "character": column}
    result = server().ask("textDocument/rename", {"textDocument": {"uri": uri}, "position": position, "newName": new})
    changed = _apply(result or {})
    if not changed:
        raise CannotRename("the language server renamed nothing")
    server().changed(changed)
    return f"{len(changed)} files"


def _apply(result: dict[str, Any]) -> list[Path]:
    edits: dict[str, list[Any]] = dict(result.get("changes") or {})
    for change in result.get("documentChanges") or []:
        edits.setdefault(change["textDocument"]["uri"], []).extend(change["edits"])
    paths = {Path(unquote(urlparse(uri).path)): changes for uri, changes in edits.items()}
    outside = [path for path in paths if not path.is_relative_to(ROOT) or ".venv" in path.parts]
    if outside:
        raise CannotRename(f"this would change {outside[0]}")
    for path, changes in paths.items():
        _edit(path, changes)
    return list(paths)


def _edit(path: Path, changes: list[Any]) -> None:
    lines = path.read_text(encoding="utf-8").split("\n")
    for change in sorted(changes, key=lambda change: _order(change["range"]["start"]), reverse=True):
        start, end = change["range"]["start"], change["range"]["end"]
        first, last = lines[start["line"]], lines[end["line"]]
        before = first.encode("utf-16-le")[: start["character"] * 2].decode("utf-16-le")
        after = last.encode("utf-16-le")[end["character"] * 2 :].decode("utf-16-le")
        lines[start["line"] : end["line"] + 1] = [before + change["newText"] + after]
    path.write_text("\n".join(lines), encoding="utf-8")


def _order(position: dict[str, int]) -> tuple[int, int]:
    return position["line"], position["character"]


def rename_family(where: str, new: str) -> str:
    packages, _, name = where.partition(":")
    count = 0
    for package in packages.split(","):
        root = module_file(package)
        for path in [root] if root.name != "__init__.py" else sorted(root.parent.rglob("*.py")):
            base = ROOT / "src" if package.split(".")[0] == "perdure" else ROOT
            module = ".".join(path.relative_to(base).with_suffix("").parts).removesuffix(".__init__")
            for owner in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(owner, ast.ClassDef) and _has_method(owner, name):
                    rename_symbol(f"{module}:{owner.name}.{name}", new)
                    count += 1
    return f"{count} classes"


def _has_method(owner: ast.ClassDef, name: str) -> bool:
    return any(isinstance(node, Function) and node.name == name for node in owner.body)


# Modules


def move_module(old: str, new: str) -> str:
    path = module_file(old)
    is_package = path.name == "__init__.py"
    base = ROOT / "src" if old.split(".")[0] == "perdure" else ROOT
    target = base / new.replace(".", "/") if is_package else (base / new.replace(".", "/")).with_suffix(".py")
    if target.exists():
        raise CannotRename(f"{target.relative_to(ROOT)} exists")
    for folder in reversed(target.relative_to(base).parents):
        package = base / folder
        if folder != Path() and not (package / "__init__.py").exists():
            package.mkdir(exist_ok=True)
            (package / "__init__.py").touch()
            git("add", package / "__init__.py")
    git("mv", path.parent if is_package else path, target)
    restart_server()
    return f"{replace_mentions(old, new, is_package=is_package)} files"


def replace_mentions(old: str, new: str, *, is_package: bool = False) -> int:
    """Imports, dotted names and paths, in code and in pages. Names of loggers and entry points are frozen."""
    dotted = re.compile(rf"(?<![\w.]){re.escape(old)}(?!\w)")
    path, new_path = old.replace(".", "/"), new.replace(".", "/")
    end = r"(?=/|`)" if is_package else r"(?=\.py\b)"
    short, new_short = path.removeprefix("perdure/"), new_path.removeprefix("perdure/")
    short_end = r"(?=/[a-z_]+\.py)" if is_package else end
    count = 0
    for file, text in text_files():
        if old.rpartition(".")[2] not in text:
            continue
        lines = [line if FROZEN_LINE.search(line) else dotted.sub(new, line) for line in text.split("\n")]
        changed = re.sub(rf"(?<!\w){re.escape(path)}{end}", new_path, "\n".join(lines))
        changed = re.sub(rf"(?<![\w/]){re.escape(short)}{short_end}", new_short, changed)
        if file.suffix == ".py":
            changed = replace_imports(changed, old, new)
        if changed != text:
            file.write_text(changed, encoding="utf-8")
            count += 1
    return count


def replace_imports(text: str, old: str, new: str) -> str:
    """`from package import old` becomes `from package import new`, and `old.name` becomes `new.name`."""
    package, _, name = old.rpartition(".")
    new_package, _, new_name = new.rpartition(".")
    if f"from {package} import" not in text:
        return text
    tree = ast.parse(text)
    lines = text.split("\n")
    statements = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and node.module == package
        and any(alias.name == name for alias in node.names)
    ]
    if any(alias.name == name and alias.asname is None for node in statements for alias in node.names):
        uses = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == name]
        for use in sorted(uses, key=lambda use: (use.lineno, use.col_offset), reverse=True):
            line = lines[use.lineno - 1].encode()
            line = line[: use.col_offset] + new_name.encode() + line[use.col_offset + len(name.encode()) :]
            lines[use.lineno - 1] = line.decode()
    for node in sorted(statements, key=lambda node: node.lineno, reverse=True):
        lines[node.lineno - 1 : node.end_lineno] = _import_lines(node, name, new_package, new_name, lines)
    return "\n".join(lines)


def _import_lines(node: ast.ImportFrom, name: str, package: str, new_name: str, lines: list[str]) -> list[str]:
    indent = " " * node.col_offset
    moved = next(alias for alias in node.names if alias.name == name)
    others = [_alias(alias.name, alias.asname) for alias in node.names if alias is not moved]
    result = [f"{indent}from {node.module} import ({', '.join(others)})"] if others else []
    comment = re.search(r"\)?\s*(#.*)$", lines[(node.end_lineno or node.lineno) - 1])
    tail = f"  {comment.group(1)}" if comment else ""
    return [*result, f"{indent}from {package} import {_alias(new_name, moved.asname)}{tail}"]


def _alias(name: str, other: str | None) -> str:
    return name if other is None else f"{name} as {other}"


# Merges


def merge_module(old: str, into: str) -> str:
    source, target = module_file(old), module_file(into)
    if source.name == "__init__.py":
        raise CannotRename(f"{old} is a package")
    texts = {old: source.read_text(encoding="utf-8"), into: target.read_text(encoding="utf-8")}
    _refuse_clashes(texts[old], texts[into], old, into)
    moved, needs_target = _without_imports_of(texts[old], into)
    kept, needs_moved = _without_imports_of(texts[into], old)
    docstring, kept_imports, kept_typing, kept_body = _parts(kept)
    remark, moved_imports, moved_typing, moved_body = _parts(moved)
    if remark:
        comment = textwrap.wrap(
            remark.split("\n\n")[0].replace("\n", " "), 116, initial_indent="# ", subsequent_indent="# "
        )
        moved_body = "\n".join(comment) + "\n\n" + moved_body
    bodies = [kept_body, moved_body] if needs_target and not needs_moved else [moved_body, kept_body]
    head = [f'"""{docstring}"""' if docstring else "", "", *dict.fromkeys([*kept_imports, *moved_imports])]
    typing_imports = list(dict.fromkeys([*kept_typing, *moved_typing]))
    if typing_imports:
        head += ["", "if TYPE_CHECKING:", *typing_imports]
    text = "\n".join(head) + "\n\n\n" + "\n\n\n".join(body for body in bodies if body.strip()) + "\n"
    ast.parse(text)
    target.write_text(text, encoding="utf-8")
    git("rm", "-q", "-f", source)
    restart_server()
    return f"{replace_mentions(old, into)} other files"


def _refuse_clashes(moved: str, kept: str, old: str, into: str) -> None:
    clashes = _defined(moved) & _defined(kept)
    imported, known = _imported(moved), _imported(kept)
    clashes |= {name for name in imported if name in known and imported[name] != known[name]}
    clashes |= {name for name in imported if name in _defined(kept) and imported[name] != f"{into}:{name}"}
    own = {old, ":".join(old.rsplit(".", 1))}
    clashes |= {name for name in known if name in _defined(moved) and known[name] not in {f"{old}:{name}", *own}}
    if clashes:
        raise CannotRename(f"both have {', '.join(sorted(clashes))}")


def _defined(text: str) -> set[str]:
    names: set[str] = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef | Function):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
    return names


def _imported(text: str) -> dict[str, str]:
    names: dict[str, str] = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name: f"{node.module}:{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.asname or alias.name.split(".")[0]: alias.name for alias in node.names}
    return names


def _without_imports_of(text: str, module: str) -> tuple[str, bool]:
    """The text without what it imports from a module, which it will contain; and whether it imported anything."""
    package, _, name = module.rpartition(".")
    tree = ast.parse(text)
    lines = text.split("\n")
    cuts: list[tuple[int, int, list[str]]] = []
    qualifier: str | None = None
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom):
            continue
        last = node.end_lineno or node.lineno
        if node.module == module:
            if any(alias.asname not in (None, alias.name) for alias in node.names):
                raise CannotRename(f"something is imported from {module} under another name")
            cuts.append((node.lineno, last, []))
        elif node.module == package and any(alias.name == name for alias in node.names):
            qualifier = next(alias.asname or name for alias in node.names if alias.name == name)
            others = [_alias(alias.name, alias.asname) for alias in node.names if alias.name != name]
            indent = " " * node.col_offset
            cuts.append((node.lineno, last, [f"{indent}from {package} import ({', '.join(others)})"] if others else []))
    if qualifier is not None:
        uses = [
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == qualifier
        ]
        for use in sorted(uses, key=lambda use: (use.lineno, use.col_offset), reverse=True):
            line = lines[use.lineno - 1].encode()
            lines[use.lineno - 1] = (line[: use.col_offset] + line[use.col_offset + len(qualifier) + 1 :]).decode()
    for first, last, replacement in sorted(cuts, reverse=True):
        lines[first - 1 : last] = replacement
    return "\n".join(lines), bool(cuts)


def _parts(text: str) -> tuple[str | None, list[str], list[str], str]:
    """Docstring, imports, imports for types, and everything behind them."""
    tree = ast.parse(text)
    lines = text.split("\n")
    imports: list[str] = []
    typing_imports: list[str] = []
    last = 0
    for position, node in enumerate(tree.body):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports.append(_source(node, lines))
        elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            typing_imports += [_source(child, lines) for child in node.body]
        elif position > 0 or ast.get_docstring(tree) is None:
            break
        last = node.end_lineno or node.lineno
    return ast.get_docstring(tree), imports, typing_imports, "\n".join(lines[last:]).strip("\n")


def _source(node: ast.stmt, lines: list[str]) -> str:
    return "\n".join(lines[node.lineno - 1 : node.end_lineno])


ACTIONS = {
    "module": move_module,
    "merge": merge_module,
    "symbol": rename_symbol,
    "local": rename_symbol,
    "family": rename_family,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=argparse.FileType("r", encoding="utf-8"), help="a file, or - for standard input")
    skipped = 0
    for row in parser.parse_args().table:
        words = row.partition("#")[0].split()
        if not words:
            continue
        action, old, new = words
        try:
            outcome = ACTIONS[action](old, new)
        except CannotRename as reason:
            outcome = f"skipped, {reason}"
            skipped += 1
        print(f"{action} {old} -> {new}: {outcome}", flush=True)
    restart_server()
    return 1 if skipped else 0


if __name__ == "__main__":
    sys.exit(main())
