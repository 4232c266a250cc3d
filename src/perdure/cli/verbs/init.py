"""`init`: the files of a first project, in the language that is asked for."""

import argparse
import json
import os
import shlex
from importlib.resources import files
from pathlib import Path

from perdure.cli.console import Console
from perdure.cli.errors import BadUsage
from perdure.cli.exit_codes import Exit
from perdure.cli.stdout import give_json, give_text
from perdure.views.resources.document_check import schema_of_language
from perdure.wiring import languages

EXAMPLES = """\
examples:
  perdure init flow                a first Flow in this folder
  perdure init story orders        a first Story in the folder orders, which is created if necessary

It writes a document, scenarios that test it, a file with the tasks that it calls, a README with the commands to try,
and the JSON Schema of the language for your editor. Existing files are not changed.
"""

FOLDER = "first_project"
TEMPLATE = ".template"  # of files that would be taken for code of this package
IGNORED = "perdure.db*\n*.token\n"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("language", metavar="LANGUAGE", help="flow, playbook or story")
    parser.add_argument("folder", metavar="FOLDER", nargs="?", default=".", help="the folder (default: this one)")


def perform(args: argparse.Namespace, talk: Console) -> int:
    project = _project(args.language)
    folder = Path(args.folder)
    taken = [name for name in project if os.path.lexists(folder / name)]  # also a link that leads nowhere yet
    if taken:
        raise BadUsage(f"{folder} already contains {', '.join(taken)}; nothing was written. Name another folder.")
    for name, text in project.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with (folder / name).open("x", encoding="utf-8") as file:
            file.write(text)
    if args.json:
        give_json({"language": args.language, "folder": str(folder), "files": list(project)})
        return Exit.OK
    talk.say(f"written to {folder}: {', '.join(project)}")
    give_text("\n".join(_commands_to_try(folder, project["README.md"])))
    return Exit.OK


def _commands_to_try(folder: Path, readme: str) -> list[str]:
    """Those of the project's README, after the way there."""
    there = [] if folder == Path() else [f"cd {shlex.quote(str(folder))}"]
    return [*there, *(line.removeprefix("$ ") for line in readme.splitlines() if line.startswith("$ "))]


def _project(language: str) -> dict[str, str]:
    """The files by name. Each language keeps its own beside its code."""
    schema = schema_of_language(languages(), language)
    where = f"schemas/{language}.schema.json"
    project: dict[str, str] = {}
    home = type(languages()[language]).__module__.rpartition(".")[0]
    for entry in sorted(files(home).joinpath(FOLDER).iterdir(), key=lambda entry: entry.name):
        text = entry.read_text(encoding="utf-8")
        if entry.name.endswith(".yaml") and ".test." not in entry.name:
            text = f"# yaml-language-server: $schema={where}\n{text}"
        project[entry.name.removesuffix(TEMPLATE)] = text
    return {**project, where: json.dumps(schema, indent=2) + "\n", ".gitignore": IGNORED}
