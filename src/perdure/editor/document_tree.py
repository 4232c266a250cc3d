"""The documents of a text, each with its parts, as far as somebody has written them."""

from perdure.editor.nodes import Node, NodeKind, TextLines
from perdure.editor.tolerant_reader import TolerantReader
from perdure.kernel.lazy_regex import lazy_regex

LARGEST = 400_000  # characters; larger texts have no parts

_DOCUMENT_START = lazy_regex(r"(?m)^(?:---|[.]{3})(?=\s|\Z)")  # what follows an end is another document, too


class DocumentTree(TextLines):
    """The documents of a text, each with its parts."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.is_json = text.lstrip("\ufeff \t\r\n")[:1] in ("{", "[")
        self.roots: list[Node] = []
        if len(text) > LARGEST:
            return
        starts = [0] if self.is_json else [0, *(match.end() for match in _DOCUMENT_START.finditer(text))]
        for index, start in enumerate(starts):
            end = starts[index + 1] - 3 if index + 1 < len(starts) else len(text)
            root = TolerantReader(self, start, end, is_json=self.is_json).read()
            if root.kind is not NodeKind.EMPTY or index + 1 == len(starts):
                self.roots.append(root)

    def node_at(self, offset: int) -> Node | None:
        """The scalar, a name or a value, at a place."""
        root = next((root for root in self.roots if root.start <= offset <= root.end), None)
        if root is None:
            return None
        for node in root.walk():
            for part in (node.key, node):
                if part is not None and part.kind is NodeKind.SCALAR and part.start <= offset <= part.end:
                    return part
        return None

    def scalar_ranges(self) -> dict[int, int]:
        """Where scalars and names end, by where they begin."""
        nodes = (part for root in self.roots for node in root.walk() for part in (node.key, node) if part is not None)
        return {node.start: node.end for node in nodes if node.kind is NodeKind.SCALAR}
