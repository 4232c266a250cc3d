"""Validates documents in their context; what a language needs to know for that is fetched.

The language reports what is wrong with a text; this module finds the language and fetches what it asks for.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import msgspec

from perdure.engine.decision_threads import WORK_OF_TEXT, ProgramCache, done_aside
from perdure.kernel.dialect import Dialect
from perdure.kernel.documents.lookups import Fetch, Lookup, LookupAnswers, ResourcesInNamespace
from perdure.kernel.documents.problems import limited_guesses
from perdure.kernel.documents.subruns import RecordedDocument
from perdure.kernel.documents.validation import AppliedDocument, DeclaredResource, Validated, ValidationContext
from perdure.kernel.errors import InvalidDocument
from perdure.kernel.ids import DEFAULT_NAMESPACE
from perdure.kernel.json_values.large_values import HASHED_IN_THREAD
from perdure.kernel.json_values.values import digest

PROGRAMS_KEPT = 64


async def nothing_known(lookups: Sequence[Lookup]) -> LookupAnswers:
    """The answers where there is no catalog."""
    return {question: [] if isinstance(question, ResourcesInNamespace) else None for question in lookups}


def calls_others(language: Dialect, text: bytes) -> bool:
    """Whether a document may start other documents, as far as its text tells."""
    return any(marker in text for marker in language.call_markers)


LANGUAGE_HINT = (
    'A Flow has "$schema": "https://mwl.dev/v0.1/flow/schema.json"; a Playbook has `kind: Playbook` and a Story '
    "`kind: Story`, each with its `apiVersion`."
)


def in_no_language(languages: Mapping[str, Dialect]) -> str:
    """What is said of a text that nobody recognizes; languages of tests are not users' business."""
    names = sorted(name for name, language in languages.items() if not language.is_for_tests)
    return f"the document is not in a language known here (expected one of {', '.join(names)})"


def _recognized_by(text: bytes, language: Dialect) -> int:
    """How much of a text, from its beginning, its language needs to recognize it."""
    return bisect_left(range(len(text)), True, key=lambda length: language.recognizes(text[:length]))


class DocumentValidator:
    """Caches valid documents: starting the same text in the same context again does not validate it again."""

    def __init__(self, languages: Mapping[str, Dialect], fetch: Fetch = nothing_known) -> None:
        self.languages = languages
        self.fetch = fetch
        self._validated: ProgramCache[bytes, tuple[LookupAnswers, Validated]] = ProgramCache(PROGRAMS_KEPT)
        self._under_way: dict[bytes, asyncio.Event] = {}
        self._declared: tuple[tuple[tuple[AppliedDocument, ...], str], list[DeclaredResource]] = (((), ""), [])

    def language_of(self, text: bytes) -> Dialect | None:
        """Of several languages that recognize a text, the one whose marks come first: data may mention the others."""
        matches = [language for language in self.languages.values() if language.recognizes(text)]
        return matches[0] if len(matches) == 1 else min(matches, key=partial(_recognized_by, text), default=None)

    async def find_language(self, text: bytes) -> Dialect | None:
        """As `language_of`; of a long text in a thread."""
        return await done_aside(WORK_OF_TEXT * len(text), lambda: self.language_of(text))

    def declared(self, applied: Iterable[AppliedDocument], namespace: str) -> list[DeclaredResource]:
        """Everything that these texts hold. Of texts that are applied together each is validated beside all of them."""
        texts = tuple(applied)
        known, resources = self._declared
        if known == (texts, namespace):
            return list(resources)
        resources = []
        for document in texts:
            text = document.text.encode()
            language = self.language_of(text)
            if language is not None:
                kinds = {kind.name: kind for kind in language.kinds}
                declarations = language.declares(text, document.file)
                resources += [
                    resource.placed(kinds[resource.kind], namespace) if resource.kind in kinds else resource
                    for resource in declarations
                ]
        self._declared = ((texts, namespace), resources)
        return list(resources)

    async def validate(
        self,
        language: Dialect,
        text: bytes,
        applied: Sequence[AppliedDocument] = (),
        *,
        chosen: str = "",
        namespace: str = DEFAULT_NAMESPACE,
    ) -> Validated:
        about = msgspec.msgpack.encode((language.name, text, applied, chosen, namespace))
        name = digest(about) if len(about) <= HASHED_IN_THREAD else await asyncio.to_thread(digest, about)
        validated = await self._known(name)
        if validated is not None:
            return validated
        done = self._under_way[name] = asyncio.Event()
        try:
            return await self._validate(name, language, text, applied, chosen, namespace)
        finally:
            del self._under_way[name]
            done.set()

    async def _known(self, name: bytes) -> Validated | None:
        """What was found good before, among the same things; a hundred who ask at once wait for the first."""
        while True:
            if (other := self._under_way.get(name)) is not None:
                await other.wait()
                continue
            validated = self._validated.get(name)
            if validated is None:
                return None
            if not validated[0] or validated[0] == await self.fetch(list(validated[0])):
                return validated[1]
            if self._validated.get(name) is validated:
                self._validated.remove(name)

    async def _validate(
        self,
        name: bytes,
        language: Dialect,
        text: bytes,
        applied: Sequence[AppliedDocument],
        chosen: str,
        namespace: str,
    ) -> Validated:
        size = WORK_OF_TEXT * (len(text) + sum(len(document.text) for document in applied))
        around = ValidationContext(
            await done_aside(size, lambda: self.declared(applied, namespace)),
            applied=applied,
            chosen=chosen,
            namespace=namespace,
        )
        await done_aside(size, partial(language.foresee, text, around))
        await self._answer(around)
        validated = await done_aside(size, partial(_parse, language, text, around))
        while await self._answer(around):
            validated = await done_aside(size, partial(_parse, language, text, around))
        if not validated.has_errors:
            self._validated.add(name, (around.answers, validated), len(text))
        return validated

    async def _answer(self, around: ValidationContext) -> bool:
        """Fetch what is open; False when nothing is."""
        if not around.unanswered:
            return False
        lookups = sorted(around.unanswered, key=repr)
        around.unanswered.clear()
        around.answers.update(await self.fetch(lookups))
        return True

    async def recorded(
        self, applied: Sequence[AppliedDocument], namespace: str = DEFAULT_NAMESPACE
    ) -> list[RecordedDocument]:
        """Those of the texts that can be run, as a run keeps them that may start them; raises when one is not in order.

        A document goes by what it calls itself; one without a name is called like its file.
        """
        recorded: list[RecordedDocument] = []
        wrong: list[str] = []
        for document in applied:
            text = document.text.encode()
            language = await self.find_language(text)
            if language is None:
                continue
            validated = await self.validate(language, text, applied, namespace=namespace)
            if validated.has_errors:
                wrong += [problem.describe(document.file) for problem in validated.problems]
            elif validated.program is not None:
                size = WORK_OF_TEXT * len(text)
                names, version = await done_aside(size, partial(_called, language, text, document.file))
                pinned = validated.pinned.decode()
                recorded.append(
                    RecordedDocument(names, language.name, pinned, version, calls_others(language, text), document.file)
                )
        if wrong:
            raise InvalidDocument("\n".join(wrong))
        return recorded


def _called(language: Dialect, text: bytes, file: str) -> tuple[list[str], str]:
    """The names of a document that can be run, and its version."""
    runnable = {kind.name for kind in language.kinds if kind.can_run}
    names: list[str] = []
    version = ""
    for declared in language.declares(text, file):
        if declared.kind in runnable:
            metadata = declared.body.get("metadata", {})
            names += [declared.name, *(str(metadata[name]) for name in ("path", "name") if name in metadata)]
            version = str(metadata.get("version", ""))
    stem = file.replace("\\", "/").rpartition("/")[2].partition(".")[0]
    return sorted(set(names) or {stem}), version


def _parse(language: Dialect, text: bytes, around: ValidationContext) -> Validated:
    with limited_guesses():
        return language.parse(text, around)
