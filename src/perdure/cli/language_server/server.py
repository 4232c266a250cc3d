"""What a language server answers: requests of an editor in, answers of `editor` and of the checks out."""

import asyncio
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any, TypeVar

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer

from perdure.cli.language_server.document_checks import DocumentChecks, DocumentRemark, OpenValidator
from perdure.cli.language_server.workspace_texts import WorkspaceTexts
from perdure.editor import navigation
from perdure.editor.completion_items import CompletionItem, CompletionKind, complete
from perdure.editor.hover import hover
from perdure.editor.nodes import TextLines
from perdure.editor.schema_lookup import LanguageSchema
from perdure.kernel.documents.problems import Severity
from perdure.views.drawing import markup
from perdure.views.resources.document_check import validate

GRAPH = "perdure.graph"
FORMS = ("mermaid", "svg", "dot", "text")
TRIGGERS = [" ", ":", '"', "'", ".", "{", "[", "/", "-"]
MOST_ITEMS = 500
_KINDS = {
    CompletionKind.MEMBER: lsp.CompletionItemKind.Property,
    CompletionKind.WORD: lsp.CompletionItemKind.EnumMember,
    CompletionKind.NAME: lsp.CompletionItemKind.Reference,
    CompletionKind.PROVIDER: lsp.CompletionItemKind.Module,
    CompletionKind.ROOT: lsp.CompletionItemKind.Variable,
}
_SYMBOLS = {
    "step": lsp.SymbolKind.Event,
    "task": lsp.SymbolKind.Function,
    "variable": lsp.SymbolKind.Variable,
    "iterator": lsp.SymbolKind.Variable,
    "ctx": lsp.SymbolKind.Variable,
    "workload": lsp.SymbolKind.Property,
    "keychain": lsp.SymbolKind.Key,
}

R = TypeVar("R")


class EditorSession:
    """One editor. Whatever is asked is answered beside the event loop: documents may be large."""

    def __init__(
        self, server: LanguageServer, texts: WorkspaceTexts, schemas: dict[str, LanguageSchema], check: OpenValidator
    ) -> None:
        self._server = server
        self._texts = texts
        self._schemas = schemas
        self._open_validator = check
        self.checks = DocumentChecks(texts, check, self._publish)

    # Texts.

    def begin(self) -> None:
        workspace = self._server.workspace
        folders = [folder.uri for folder in workspace.folders.values()]
        self._texts.set_folders(folders or ([workspace.root_uri] if workspace.root_uri else []))

    def update(self, address: str, number: int | None, *, is_new: bool = False) -> None:
        self._texts.open(address, self._server.workspace.get_text_document(address).source)
        self.checks.begin(address, number, **({"delay": 0.0} if is_new else {}))

    def check_again(self) -> None:
        """What a document refers to may have changed in another file."""
        for address, document in self._server.workspace.text_documents.items():
            self.checks.begin(address, document.version)

    def close(self, address: str) -> None:
        self.checks.give_up(address)
        self._texts.close(address)
        self._server.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(address, []))

    def _publish(self, address: str, number: int | None, text: TextLines, remarks: list[DocumentRemark]) -> None:
        diagnostics = [
            lsp.Diagnostic(
                self._range(text, remark.start, remark.end),
                remark.message,
                lsp.DiagnosticSeverity.Error if remark.severity is Severity.ERROR else lsp.DiagnosticSeverity.Warning,
                remark.code,
                source="perdure",
            )
            for remark in remarks
        ]
        self._server.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(address, diagnostics, number))

    # Questions.

    async def completions(self, address: str, position: lsp.Position) -> lsp.CompletionList:
        text = self._texts.text_of(address)
        items, lines = await asyncio.to_thread(self._complete, address, text, position)
        return lsp.CompletionList(len(items) > MOST_ITEMS, [self._item(lines, item) for item in items[:MOST_ITEMS]])

    def _complete(self, address: str, text: str, position: lsp.Position) -> tuple[list[CompletionItem], TextLines]:
        lines = TextLines(text)
        offset = self._offset(lines, position)
        language = self._texts.language_of(address, text)
        if language is not None:
            others = [names for other, names in self._texts.workspace_of(address).items() if other != address]
            return complete(text, offset, self._schemas[language], others), lines
        if self._texts.is_scenario(address):
            return [], lines
        items = [item for schema in self._schemas.values() for item in complete(text, offset, schema)]
        return list({item.label: item for item in items}.values()), lines

    def _item(self, text: TextLines, item: CompletionItem) -> lsp.CompletionItem:
        return lsp.CompletionItem(
            label=item.label,
            kind=_KINDS[item.kind],
            detail=item.detail or None,
            documentation=item.text or None,
            sort_text=f"{0 if item.is_first else 1}{item.label}",
            filter_text=item.insert,
            text_edit=lsp.TextEdit(self._range(text, item.start, item.end), item.insert),
        )

    async def explain(self, address: str, position: lsp.Position) -> lsp.Hover | None:
        def ask(workspace: navigation.Workspace, offset: int) -> lsp.Hover | None:
            names = workspace[address]
            about = hover(names, offset, [other for at, other in workspace.items() if at != address])
            if about is None:
                return None
            content = lsp.MarkupContent(lsp.MarkupKind.Markdown, about.text)
            return lsp.Hover(content, self._range(names.tree, about.start, about.end))

        return await self._ask(address, position, ask)

    async def definitions(self, address: str, position: lsp.Position) -> list[lsp.Location] | None:
        return await self._ask(
            address,
            position,
            lambda workspace, offset: self._located(workspace, navigation.find_definitions(workspace, address, offset)),
        )

    async def references(
        self, address: str, position: lsp.Position, *, with_declarations: bool
    ) -> list[lsp.Location] | None:
        def ask(workspace: navigation.Workspace, offset: int) -> list[lsp.Location]:
            places = navigation.find_references(workspace, address, offset, with_declarations=with_declarations)
            return self._located(workspace, places)

        return await self._ask(address, position, ask)

    async def renamable(self, address: str, position: lsp.Position) -> lsp.Range | None:
        def ask(workspace: navigation.Workspace, offset: int) -> lsp.Range:
            place = navigation.find_renamable(workspace, address, offset)
            return self._range(workspace[address].tree, place.start, place.end)

        return await self._ask(address, position, ask)

    async def rename(self, address: str, position: lsp.Position, name: str) -> lsp.WorkspaceEdit | None:
        def ask(workspace: navigation.Workspace, offset: int) -> lsp.WorkspaceEdit:
            changes: dict[str, Sequence[lsp.TextEdit]] = {}
            for edit in navigation.rename(workspace, address, offset, name):
                place = self._range(workspace[edit.address].tree, edit.start, edit.end)
                changes[edit.address] = [*changes.get(edit.address, ()), lsp.TextEdit(place, edit.text)]
            return lsp.WorkspaceEdit(changes)

        return await self._ask(address, position, ask)

    async def symbols(self, address: str) -> list[lsp.DocumentSymbol] | None:
        def ask(workspace: navigation.Workspace, _: int) -> list[lsp.DocumentSymbol]:
            names = workspace[address]
            return [self._symbol(names.tree, symbol) for symbol in navigation.outline(names)]

        return await self._ask(address, lsp.Position(0, 0), ask)

    def _symbol(self, text: TextLines, symbol: navigation.Symbol) -> lsp.DocumentSymbol:
        return lsp.DocumentSymbol(
            symbol.name,
            _SYMBOLS.get(symbol.kind, lsp.SymbolKind.Object),
            self._range(text, symbol.start, symbol.end),
            self._range(text, symbol.name_start, symbol.name_end),
            symbol.detail,
            children=[self._symbol(text, child) for child in symbol.children],
        )

    async def graph(self, address: str, form: str) -> dict[str, str]:
        """The document as a picture, or as text that an editor draws."""
        if form not in FORMS:
            raise JsonRpcInvalidParams(f"there is no form {form!r} (expected {', '.join(FORMS)})")
        text = self._texts.text_of(address).encode(errors="replace")
        applied = await asyncio.to_thread(self._texts.applied_with, address)
        async with self._open_validator() as validator:
            document = await validate(address, text, validator, applied)
        language, program = document.language, document.program
        if document.errors or language is None or program is None or not language.draws_graphs:
            reason = document.problems[0].message if document.problems else "there is nothing to draw"
            raise JsonRpcInvalidParams(f"the document cannot be drawn: {reason}")
        drawn = await asyncio.to_thread(lambda: markup.draw(form, language.graph(program)))
        return {"form": form, "text": drawn}

    # Positions.

    async def _ask(
        self, address: str, position: lsp.Position, question: Callable[[navigation.Workspace, int], R]
    ) -> R | None:
        """None: it is a document of something else."""

        def answer() -> R | None:
            workspace = self._texts.workspace_of(address)
            if address not in workspace:
                return None
            return question(workspace, self._offset(workspace[address].tree, position))

        try:
            return await asyncio.to_thread(answer)
        except navigation.RenameRefused as refusal:
            raise JsonRpcInvalidParams(str(refusal)) from None

    @property
    def _encoding(self) -> str:
        encoding = self._server.workspace.position_encoding
        return getattr(encoding, "value", encoding) or "utf-16"

    def _offset(self, text: TextLines, position: lsp.Position) -> int:
        return text.offset_at(position.line, position.character, self._encoding)

    def _range(self, text: TextLines, start: int, end: int) -> lsp.Range:
        positions = (text.position_of(offset, self._encoding) for offset in (start, end))
        return lsp.Range(*(lsp.Position(*position) for position in positions))

    def _located(self, workspace: navigation.Workspace, places: Sequence[navigation.Location]) -> list[lsp.Location]:
        return [
            lsp.Location(place.address, self._range(workspace[place.address].tree, place.start, place.end))
            for place in places
        ]


def language_server(texts: WorkspaceTexts, schemas: dict[str, LanguageSchema], check: OpenValidator) -> LanguageServer:
    server = LanguageServer("perdure", version("perdure"))
    session = EditorSession(server, texts, schemas, check)
    _keep_texts(server, session)
    _answer(server, session)
    return server


def _keep_texts(server: LanguageServer, session: EditorSession) -> None:
    @server.feature(lsp.INITIALIZED)
    def initialized(params: lsp.InitializedParams) -> None:
        session.begin()

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    async def opened(params: lsp.DidOpenTextDocumentParams) -> None:
        session.update(params.text_document.uri, params.text_document.version, is_new=True)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    async def changed(params: lsp.DidChangeTextDocumentParams) -> None:
        session.update(params.text_document.uri, params.text_document.version)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    async def closed(params: lsp.DidCloseTextDocumentParams) -> None:
        session.close(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_SAVE)
    async def saved(params: lsp.DidSaveTextDocumentParams) -> None:
        session.check_again()

    @server.feature(lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    async def files_changed(params: lsp.DidChangeWatchedFilesParams) -> None:
        session.check_again()

    @server.feature(lsp.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)
    async def folders_changed(params: lsp.DidChangeWorkspaceFoldersParams) -> None:
        session.begin()
        session.check_again()


def _answer(server: LanguageServer, session: EditorSession) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=TRIGGERS))
    async def completions(params: lsp.CompletionParams) -> lsp.CompletionList:
        return await session.completions(params.text_document.uri, params.position)

    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    async def explain(params: lsp.HoverParams) -> lsp.Hover | None:
        return await session.explain(params.text_document.uri, params.position)

    @server.feature(lsp.TEXT_DOCUMENT_DEFINITION)
    async def definitions(params: lsp.DefinitionParams) -> list[lsp.Location] | None:
        return await session.definitions(params.text_document.uri, params.position)

    @server.feature(lsp.TEXT_DOCUMENT_REFERENCES)
    async def references(params: lsp.ReferenceParams) -> list[lsp.Location] | None:
        is_whole = params.context.include_declaration
        return await session.references(params.text_document.uri, params.position, with_declarations=is_whole)

    @server.feature(lsp.TEXT_DOCUMENT_PREPARE_RENAME)
    async def renamable(params: lsp.PrepareRenameParams) -> lsp.Range | None:
        return await session.renamable(params.text_document.uri, params.position)

    @server.feature(lsp.TEXT_DOCUMENT_RENAME)
    async def rename(params: lsp.RenameParams) -> lsp.WorkspaceEdit | None:
        return await session.rename(params.text_document.uri, params.position, params.new_name)

    @server.feature(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    async def symbols(params: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol] | None:
        return await session.symbols(params.text_document.uri)

    @server.command(GRAPH)
    async def graph(*arguments: str) -> Any:
        if not 1 <= len(arguments) <= 2 or not all(isinstance(argument, str) for argument in arguments):
            raise JsonRpcInvalidParams(f"{GRAPH} takes the address of a document, and a form ({', '.join(FORMS)})")
        return await session.graph(arguments[0], arguments[1] if len(arguments) > 1 else FORMS[0])
