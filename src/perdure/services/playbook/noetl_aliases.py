"""NoETL spellings of commands, translated to ours (PBK-234). Pure: arguments in, arguments out.

Only the spelling is translated here; the command itself defines what is done and printed.
"""

from collections.abc import Callable, Sequence

Words = list[str]

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
catalog list/get/register; `run` takes --payload, -t STEP, -r local and --dry-run.
"""


def translate_arguments(words: Sequence[str]) -> Words:
    """The command in our spelling; one that is not an alias is returned unchanged."""
    if not words:
        return []
    verb, *rest = words
    two = _TWO_WORDS.get((verb, rest[0])) if rest else None
    if two is not None:
        return two(rest[1:])
    if verb == "cleanup":
        return [*PLAIN[verb], *_ages(rest)]
    if verb == "register":
        return _register(rest)
    if verb in PLAIN:
        return [*PLAIN[verb], *_renamed(rest, OPTIONS.get(verb, {}))]
    return list(words)


def _renamed(words: Sequence[str], names: dict[str, str]) -> Words:
    renamed = []
    for word in words:
        name, equals, value = word.partition("=")
        renamed.append(f"{names[name]}{equals}{value}" if name in names else word)
    return renamed


def _ages(words: Sequence[str]) -> Words:
    """`--older-than-minutes 5`, which is also what is meant without it."""
    translated: Words = []
    is_age = has_age = False
    for word in words:
        name, equals, value = word.partition("=")
        if is_age:
            translated.append(f"{word}m")
        elif name == "--older-than-minutes":
            translated += ["--older-than", *([f"{value}m"] if equals else ())]
        else:
            translated.append(word)
        has_age = has_age or name in ("--older-than-minutes", "--older-than", "-h", "--help")
        is_age = name == "--older-than-minutes" and not equals
    return translated if has_age else ["--older-than", f"{DEFAULT_AGE}m", *translated]


def _register(words: Sequence[str]) -> Words:
    """`register playbook FILE`, `register FILE`, `register playbook --file FILE`."""
    rest = list(words[1:] if words[:1] == ["playbook"] else words)
    files = [*_renamed(rest, {"--file": "-f"})]
    if files and not files[0].startswith("-"):
        files = ["-f", *files]
    return ["apply", *files]


def _ctx_set(words: Sequence[str]) -> Words:
    """`ctx set RUN k=v…`."""
    run, *rest = words or [""]
    pairs = [part for word in rest for part in (("--set", word) if "=" in word and word[:1] != "-" else (word,))]
    return ["patch", *filter(None, [run]), *pairs]


def _catalog_list(words: Sequence[str]) -> Words:
    kind = words[:1] if words and not words[0].startswith("-") else ["playbooks"]
    return ["get", *kind, *words[len(kind) if words[:1] == kind else 0 :]]


def _catalog_get(words: Sequence[str]) -> Words:
    named = [*words] if words[:1] and words[0] in ("playbook", "playbooks") else ["playbook", *words]
    return ["get", *named] if "-o" in words or "--json" in words else ["get", *named, "-o", "yaml"]


_TWO_WORDS: dict[tuple[str, str], Callable[[Sequence[str]], Words]] = {
    ("ctx", "set"): _ctx_set,
    ("catalog", "list"): _catalog_list,
    ("catalog", "get"): _catalog_get,
    ("catalog", "register"): _register,
}
