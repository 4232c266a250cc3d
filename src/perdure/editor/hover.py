"""What a field, a word, a name or a root of expressions means, as Markdown."""

from collections.abc import Iterable
from dataclasses import dataclass

from perdure.editor.expression_names import expression_before, typed_path
from perdure.editor.names import DocumentNames, NameUse
from perdure.editor.nodes import Node, NodeKind

MOST_WORDS = 20
_ABOUT = ("desc", "description", "comment")  # members in which authors say what a step is for
_SORTS = ("action", "type", "kind")  # members that say what a step does


@dataclass(frozen=True, slots=True)
class Hover:
    text: str
    start: int
    end: int


def hover(names: DocumentNames, offset: int, elsewhere: Iterable[DocumentNames] = ()) -> Hover | None:
    node = names.tree.node_at(offset)
    if node is None:
        return None
    if node.parent is not None and node.parent.key is node:
        return _about_member(names, node.parent, node)
    if (use := names.use_at(offset)) is not None:
        return Hover(_about_name(names, use, elsewhere), use.start, use.end)
    begin = expression_before(names.tree.text, node.start, offset)
    if begin is not None:
        return _about_root(names, begin, offset)
    return _about_word(names, node)


def _about_member(names: DocumentNames, value: Node, key: Node) -> Hover | None:
    mapping = value.parent
    assert mapping is not None
    members = names.lookup.members_at(mapping)
    if key.text not in members:
        use = names.use_at(key.start)
        return None if use is None else Hover(_about_name(names, use, ()), key.start, key.end)
    schema = members[key.text]
    facts = [names.lookup.types([schema])] if names.lookup.types([schema]) else []
    facts += ["required"] if key.text in names.lookup.required_at(mapping) else []
    lines = [f"**{key.text}**" + (f" ({', '.join(facts)})" if facts else "")]
    if description := names.lookup.description(schema):
        lines.append(description)
    words = names.lookup.words_at(value)
    if words:
        lines.append(
            "\n".join(f"- `{word}`{f': {text}' if text else ''}" for word, text in list(words.items())[:MOST_WORDS])
        )
    return Hover("\n\n".join(lines), key.start, key.end)


def _about_word(names: DocumentNames, node: Node) -> Hover | None:
    meaning = names.lookup.words_at(node).get(node.text, "")
    provider = names.lookup.language.providers.get(node.text)
    if not meaning and provider is not None and names.lookup.facts_at(node).get("names_provider"):
        meaning = provider.description or "A provider."
        if arguments := ", ".join(f"`{name}`" for name in provider.parameters.get("properties", {})):
            meaning += f"\n\nArguments: {arguments}"
    if not meaning:
        return None
    return Hover(f"**{node.text}**\n\n{meaning}", node.start, node.end)


def _about_name(names: DocumentNames, use: NameUse, elsewhere: Iterable[DocumentNames]) -> str:
    lines = [f"**{use.name}** ({use.kind})"]
    declarations = [
        *names.declarations(use),
        *(declared for other in elsewhere for declared in other.declarations(use)),
    ]
    for declared in declarations[:1]:
        values = declared.node.values() if declared.node.kind is NodeKind.MAPPING else {}
        lines += [f"`{name}: {values[name]}`" for name in _SORTS if values.get(name)]
        lines += [values[name] for name in _ABOUT if values.get(name)]
    if not declarations:
        lines.append("It is not declared here.")
    return "\n\n".join(lines)


def _about_root(names: DocumentNames, begin: int, offset: int) -> Hover | None:
    text = names.tree.text
    end = offset
    while end < len(text) and (text[end].isalnum() or text[end] == "_"):
        end += 1
    typed = typed_path(text, begin, end)
    roots = names.lookup.language.expressions.get("roots", {})
    if typed.root or typed.word not in roots:
        return None
    return Hover(f"**{typed.word}**\n\n{roots[typed.word]['text']}", end - len(typed.word), end)
