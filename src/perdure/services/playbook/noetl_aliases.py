"""NoETL spellings of commands, translated to ours (PBK-234). Pure: arguments in, arguments out.

Only the spelling is translated here; the command itself defines what is done and printed.
"""

from collections.abc import Callable, Sequence

Arguments = list[str]

PLAIN = {
    "validate": ["check"],
    "exec": ["run"],
    "execute": ["run"],
    "executions": ["ps"],
    "events": ["history"],
    "replay": ["show"],
    "cleanup": ["prune"],
}
OPTIONS = {
    "events": {"--after-seq": "--after"},
    "replay": {"--as-of": "--at"},
}
DEFAULT_AGE = "5"  # minutes, of `cleanup`

HELP = """\
NoETL commands are accepted: validate, exec, executions, events, status, ctx set, replay, cleanup, register,
catalog list/get/register, server start, worker start; `run` takes --payload, -t STEP, -r local and --dry-run.
"""


def translate_arguments(arguments: Sequence[str]) -> Arguments:
    """The command in our spelling; one that is not an alias is returned unchanged."""
    if not arguments:
        return []
    verb, *rest = arguments
    two = _TWO_PART_COMMANDS.get((verb, rest[0])) if rest else None
    if two is not None:
        return two(rest[1:])
    if verb == "cleanup":
        return [*PLAIN[verb], *_ages(rest)]
    if verb == "register":
        return _register(rest)
    if verb == "replay" and any(word.partition("=")[0] in ("--with", "-h", "--help") for word in rest):
        return list(arguments)  # ours has the same name
    if verb in PLAIN:
        return [*PLAIN[verb], *_renamed(rest, OPTIONS.get(verb, {}))]
    return list(arguments)


def _renamed(arguments: Sequence[str], names: dict[str, str]) -> Arguments:
    renamed = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        renamed.append(f"{names[name]}{equals}{value}" if name in names else argument)
    return renamed


def _ages(arguments: Sequence[str]) -> Arguments:
    """`--older-than-minutes 5`, which is also what is meant without it."""
    translated: Arguments = []
    is_age = has_age = False
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if is_age:
            translated.append(f"{argument}m")
        elif name == "--older-than-minutes":
            translated += ["--older-than", *([f"{value}m"] if equals else ())]
        else:
            translated.append(argument)
        has_age = has_age or name in ("--older-than-minutes", "--older-than", "-h", "--help")
        is_age = name == "--older-than-minutes" and not equals
    return translated if has_age else ["--older-than", f"{DEFAULT_AGE}m", *translated]


def _register(arguments: Sequence[str]) -> Arguments:
    """`register playbook FILE`, `register FILE`, `register playbook --file FILE`."""
    rest = list(arguments[1:] if arguments[:1] == ["playbook"] else arguments)
    files = [*_renamed(rest, {"--file": "-f"})]
    if files and not files[0].startswith("-"):
        files = ["-f", *files]
    return ["apply", *files]


def _ctx_set(arguments: Sequence[str]) -> Arguments:
    """`ctx set RUN k=v…`."""
    run, *rest = arguments or [""]
    pairs = [part for word in rest for part in (("--set", word) if "=" in word and word[:1] != "-" else (word,))]
    return ["patch", *filter(None, [run]), *pairs]


def _catalog_list(arguments: Sequence[str]) -> Arguments:
    kind = arguments[:1] if arguments and not arguments[0].startswith("-") else ["playbooks"]
    return ["get", *kind, *arguments[len(kind) if arguments[:1] == kind else 0 :]]


def _catalog_get(arguments: Sequence[str]) -> Arguments:
    named = [*arguments] if arguments[:1] and arguments[0] in ("playbook", "playbooks") else ["playbook", *arguments]
    return ["get", *named] if "-o" in arguments or "--json" in arguments else ["get", *named, "-o", "yaml"]


_TWO_PART_COMMANDS: dict[tuple[str, str], Callable[[Sequence[str]], Arguments]] = {
    ("ctx", "set"): _ctx_set,
    ("catalog", "list"): _catalog_list,
    ("catalog", "get"): _catalog_get,
    ("catalog", "register"): _register,
    ("server", "start"): lambda arguments: ["serve", *arguments],
    ("worker", "start"): lambda arguments: ["worker", *arguments],
}
