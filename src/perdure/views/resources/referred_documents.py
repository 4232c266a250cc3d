"""What documents of a request refer to in the catalog: for processes that do not have the store.

Only entries that the caller may see, and never secrets: only what validation asks for, and documents that can be run.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

from perdure.documents import UnreadableText, read_documents
from perdure.engine.client import Client
from perdure.engine.decision_threads import WORK_OF_TEXT, done_aside
from perdure.engine.resources.catalog import ResourceNotFound
from perdure.engine.resources.document_validation import DocumentValidator, calls_others
from perdure.kernel.documents.lookups import Lookup, LookupAnswers, ResourceKey
from perdure.kernel.documents.validation import AppliedDocument
from perdure.kernel.errors import Conflict
from perdure.kernel.json_values import jsontext
from perdure.kernel.lazy_regex import lazy_regex

MOST = 200  # entries of the catalog that one request brings
LONGEST_NAME = 253
FOLDER = "perdure.catalog"
HIDDEN = frozenset({"Secret"})
_STEM = lazy_regex(r"[A-Za-z0-9_][A-Za-z0-9_-]*")


async def referred_documents(
    client: Client, documents: Sequence[AppliedDocument], sees: Callable[[str], bool], namespace: str
) -> dict[str, str]:
    """Texts by the names of files, directly or through each other.

    `sees`: which namespaces count; `namespace`: where documents are that do not name one.
    """
    search = _Search(client, documents, sees, namespace)
    pending = [document.text for document in documents]
    for text in pending:
        pending += [other async for other in search.beside(text)]
    return search.files


class _Search:
    def __init__(
        self, client: Client, documents: Sequence[AppliedDocument], sees: Callable[[str], bool], namespace: str
    ) -> None:
        self.client = client
        self.documents = documents
        self.sees = sees
        self.namespace = namespace
        self.files: dict[str, str] = {}
        self._known_keys: set[ResourceKey] = set()
        self._asked: set[str] = set()
        self._resources: list[ResourceKey] = []
        self._validator = DocumentValidator(client.languages, self._fetch)

    async def beside(self, text: str) -> AsyncIterator[str]:
        """The texts of further documents that this one refers to."""
        language = await self._validator.find_language(text.encode())
        if language is None:
            return
        await self._validator.validate(language, text.encode(), self.documents, namespace=self.namespace)
        while self._resources:
            key = self._resources.pop()
            if self._is_new(key) and (body := await self._body_of(key)):
                yield self._keep(key.name, body)
        if not calls_others(language, text.encode()) or not self.sees(self.namespace):
            return
        for name in await done_aside(WORK_OF_TEXT * len(text), lambda: list(_names_in(text))):
            if name in self._asked or len(self._asked) >= MOST:
                continue
            self._asked.add(name)
            try:
                callee = await self.client.catalog.find(name, self.namespace)
            except (Conflict, ResourceNotFound):
                continue
            if callee is not None and self._is_new(callee.key):
                yield self._keep(name, callee.text.decode())

    async def _fetch(self, lookups: Sequence[Lookup]) -> LookupAnswers:
        """What the catalog says to a validation; entries that the caller may not see are not there."""
        answers = await self.client.known(lookups)
        for lookup, answer in answers.items():
            namespace = getattr(lookup, "namespace", "")
            if namespace and not self.sees(namespace):
                answers[lookup] = None if isinstance(lookup, ResourceKey) else []
            elif isinstance(lookup, ResourceKey) and isinstance(answer, dict) and self._is_document(lookup.kind):
                self._resources.append(lookup)
        return answers

    async def _body_of(self, key: ResourceKey) -> str:
        """The entry as it was written, in its namespace; empty if it is none of the catalog's own."""
        catalog = self.client.catalog
        try:
            row = await catalog.row(catalog.kind(key.kind), key.name, key.namespace)
        except ResourceNotFound:
            return ""
        body = jsontext.decode(row.body)
        if key.namespace:
            body["metadata"]["namespace"] = key.namespace
        return jsontext.encode(body).decode()

    def _is_document(self, kind: str) -> bool:
        return kind not in HIDDEN and not self.client.catalog.kind(kind).of_runs

    def _is_new(self, key: ResourceKey) -> bool:
        is_new = key not in self._known_keys and len(self._known_keys) < MOST
        self._known_keys.add(key)
        return is_new

    def _keep(self, name: str, text: str) -> str:
        """A document without a name of its own is called like its file."""
        last = name.rpartition("/")[2].partition("@")[0]
        stem = last if _STEM.fullmatch(last) else "document"
        self.files[f"{FOLDER}/{len(self.files)}/{stem}.json"] = text
        return text


def _names_in(text: str) -> Iterator[str]:
    """Every text in a document that may be the name of another one."""
    try:
        pending: list[Any] = [document.data for document in read_documents(text.encode())]
    except UnreadableText:
        return
    for value in pending:
        if isinstance(value, dict):
            pending += value.values()
        elif isinstance(value, list):
            pending += value
        elif isinstance(value, str) and 0 < len(value) <= LONGEST_NAME and value.isprintable() and " " not in value:
            yield value
