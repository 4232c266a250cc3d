"""The one place that builds concrete things."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from perdure.engine.client import Client
from perdure.engine.clock import Clock, SystemClock
from perdure.engine.runtime import Runtime
from perdure.engine.settings import Settings
from perdure.kernel.dialect import Dialect
from perdure.kernel.errors import EngineProcessesRefused, PerdureError
from perdure.kernel.json_values.values import RunId
from perdure.providers.policy import policy_in_force, read_key_files
from perdure.providers.policy import serving_policy as serving_policy
from perdure.stores.store_urls import admin_at, restore_at, shell_quoted, store_at, without_password

if TYPE_CHECKING:
    from perdure.engine.resources.catalog_changes import Change, Finding
    from perdure.engine.runs.document_start import Document
    from perdure.engine.runs.retention import RetentionRule
    from perdure.engine.runs.run_waiters import Ended
    from perdure.engine.secrets.kept_credentials import KeptCredentials
    from perdure.engine.tasks.executor import Executor
    from perdure.kernel.documents.validation import AppliedDocument
    from perdure.kernel.ids import ServerGroup
    from perdure.kernel.tasks.task_sources import TaskSource
    from perdure.providers.registry import Registry
    from perdure.services.engine_processes import EngineProcesses
    from perdure.services.flow.conformance import Suite, Verdict
    from perdure.services.playbook.keychain import SentFor
    from perdure.services.sandbox import Trial
    from perdure.services.schedules.administration import ScheduleAdministration
    from perdure.services.story.triggers.impulses import ImpulseEvents
    from perdure.stores.admin import StoreAdmin
    from perdure.stores.protocol import Store
    from perdure.workers.pool_worker import PoolWorker
    from perdure.workers.unsealer import Documents

PENDING_REQUESTS = "PendingStoryTrigger"  # where the catalog notes requests without an answer
DEFAULT_STORE = "sqlite:///perdure.db"
STEP_RUNS = {"playbook": ("PERDURE_PLAYBOOK_STEP_RUNS", 8)}  # at a time in one worker (PBK-197)

_added_languages: list[Callable[[], Dialect]] = []


def languages(
    has_code: Callable[[str], bool] | None = None,
    refusal: Callable[..., str | None] | None = None,
    providers: "Registry | None" = None,
    provided: Callable[[str, str, str], dict[str, Any] | None] | None = None,
) -> dict[str, Dialect]:
    """Every language that Perdure knows. `has_code` says which Engrams there are, `provided` which resources nobody has
    to apply, if not those of loaded code; `refusal` why documents may not use a provider, if not the policy in force.
    """
    from perdure.dialects.flow import Flow
    from perdure.dialects.playbook import Playbook
    from perdure.dialects.story import Story
    from perdure.providers.registry import shared
    from perdure.services.story import read_settings, remove_recordings

    policy_in_force()  # one that cannot be read stops us here

    def refusal_in_force(provider: str, namespace: str = "default") -> str | None:
        return policy_in_force().refusal(provider, namespace)

    refusal, known = refusal or refusal_in_force, providers or shared
    dialects: tuple[Dialect, ...] = (
        Flow(known.find_open, known.open_names, refusal, known.repeats_effects),
        Playbook(known.knows_open, known.open_names, known.lacks, refusal, known.repeats_effects),
        Story(
            provided or _engram_resource,
            lambda template, version: (has_code or shared.knows)(f"engram:{template}@{version}"),
            read_settings(os.environ.get("PERDURE_STORY_SETTINGS", "")),
            refusal,
            lambda: {language.name: kind for language in dialects for kind in language.kinds if kind.can_run},
            remove_recordings,
        ),
        *(create() for create in _added_languages),
    )
    return {language.name: language for language in dialects}


def add_language(create: Callable[[], Dialect]) -> None:
    """Have this process know one more language than those that come with Perdure."""
    if create not in _added_languages:
        _added_languages.append(create)


def _engram_resource(kind: str, namespace: str, name: str) -> dict[str, Any] | None:
    """What loaded code stands for in the catalog of Stories; looked for when the first Story asks."""
    from perdure.services.story.engrams.registry import shared_engrams

    return shared_engrams.find(kind, namespace, name)


def open_store(
    url: str,
    clock: Clock,
    *,
    must_exist: bool = False,
    lease: float | None = None,
    timeout: float | None = None,
    group: "ServerGroup | None" = None,
) -> "Store":
    """`timeout`: seconds for a database that is away, a file that is locked. Processes of a `group` share a file."""
    now = None if isinstance(clock, SystemClock) else clock.now
    store = store_at(url, now, must_exist=must_exist, lease=lease, timeout=timeout, group=group)
    if isinstance(clock, SystemClock):
        clock.follow(store.clock)
    return store  # type: ignore[no-any-return]


def open_admin(url: str, clock: Clock) -> "StoreAdmin":
    """Whoever looks after the store at this address; nothing is opened before something is asked."""
    return admin_at(url, clock.now)


url_without_password = without_password  # the address of a store as it may be shown
url_to_type = shell_quoted  # the same for a command that people are told to type
restore_store = restore_at


def local_executor(
    clock: Clock,
    documents: "Documents",
    dialects: Mapping[str, Dialect],
    credentials: "Callable[[], KeptCredentials] | None" = None,
    sent: "SentFor | None" = None,
    processes: int = 1,
) -> "Executor":
    """What performs tasks in this process, one of so many; `documents` has those that opening a task asks for."""
    from perdure.services.playbook.keychain import HostKeychain, HostSecrets
    from perdure.workers.concurrency_limits import limits_from_environment
    from perdure.workers.secrets import from_environment
    from perdure.workers.unsealer import Unsealer
    from perdure.workers.worker import Worker

    keychain = HostKeychain(HostSecrets(from_environment), credentials, sent)
    openers = {name: language for name, language in dialects.items() if language.opens_envelopes}
    unsealer = Unsealer(openers, documents, clock.now, keychain)
    limits = limits_from_environment(STEP_RUNS, processes)
    return Worker(now=clock.now, keychain=keychain, unsealer=unsealer, limits=limits)


def pool_worker(source: "TaskSource", executor: "Executor", clock: Clock, name: str, slots: int) -> "PoolWorker":
    """What gets tasks from a server and has them performed here."""
    from perdure.workers.pool_worker import PoolWorker

    return PoolWorker(source, executor, clock.now, name=name, slots=slots)


def stream_performer() -> tuple[list[str], Callable[..., Awaitable[None]]]:
    """Which streaming steps of a server can be done here, by their providers, and how one is done."""
    from perdure.services.story.streams.remote_session import perform_step, streaming_providers
    from perdure.workers.secrets import Secrets, from_environment

    return streaming_providers(), lambda connection, step: perform_step(connection, step, Secrets(from_environment))


def load_sources(sources: Iterable[str]) -> None:
    """Import modules or files that register providers."""
    from perdure.providers.source_loading import LoadError, load
    from perdure.views.errors import LoadFailed

    for source in sources:
        try:
            load(source)
        except LoadError as error:
            raise LoadFailed(str(error)) from error


def language_metrics(clock: Clock) -> "tuple[Any, Any, Any]":
    """What `ServerMetrics` counts for each language, besides what it counts for all."""
    from perdure.services import language_metrics

    return language_metrics(clock.now)


def schedules(client: Client) -> "ScheduleAdministration":
    """List, pause and backfill the schedules of a store."""
    from perdure.services.schedules.administration import ScheduleAdministration, schedule_source

    return ScheduleAdministration(client, schedule_source(client))


def retention_rules() -> "list[RetentionRule]":
    """How long the operator keeps ended runs."""
    from perdure.views.administration.retention_rules import read_rules

    return read_rules(os.environ)


def conformance() -> "tuple[Callable[[Iterable[Path]], Suite], Callable[..., Awaitable[list[Verdict]]]]":
    """What reads the cases of a language, and what runs them."""
    from perdure.services.flow.conformance import read_suite, run_suite

    return read_suite, run_suite


def sandbox(document: bytes, input: Any, **asked: Any) -> "AbstractAsyncContextManager[Trial]":
    """A document tried out, with mocks and in virtual time."""
    from perdure.services.sandbox import sandbox

    return sandbox(document, input, **asked)


class Engine(Client):
    """Runs documents durably on one store: `async with perdure.Engine("sqlite:///runs.db") as engine`."""

    def __init__(
        self,
        store: "str | Store" = DEFAULT_STORE,
        *,
        settings: Settings | None = None,
        clock: Clock | None = None,
        hands: "Executor | None" = None,
        spoken: Mapping[str, Dialect] | None = None,
        recover: bool = True,
        processes: int = 1,
    ) -> None:
        """`recover`: take up, at opening and later, runs that others left behind and whose code is loaded here.

        `processes`: so many share the runs, this one among them, about one for each core. The others import the code
        of all providers; on one SQLite file or one PostgreSQL database.
        """
        self._recovers = recover
        self._processes: "EngineProcesses | None" = None  # noqa: UP037  (imported below)
        settings, group = settings or Settings(), None
        if processes != 1:
            from perdure.services.engine_processes import EngineProcesses

            if clock is not None or hands is not None or spoken is not None or not recover:
                raise EngineProcessesRefused(
                    "`processes` cannot be combined with clock, hands, spoken or recover=False"
                )
            self._processes = EngineProcesses(self, store, settings, processes, _added_languages)
            settings, group = self._processes.settings, self._processes.group
        clock = clock or SystemClock()
        spoken = languages() if spoken is None else spoken
        opened = open_store(store, clock, group=group) if isinstance(store, str) else store
        several = settings.processes
        hands = hands or local_executor(clock, opened.program, spoken, lambda: self.credentials, processes=several)
        runtime = Runtime(opened, spoken, hands, clock, settings)
        super().__init__(opened, spoken, clock, runtime)
        self.runtime: Runtime = runtime

    @cached_property
    def credentials(self) -> "KeptCredentials":
        from perdure.views.resources.credential_list import open_credentials

        return open_credentials(self.store)

    async def __aenter__(self) -> Self:
        from perdure.providers.registry import shared

        if self._processes is not None:
            self._processes.prepare()
        if read_key_files(os.environ) or await self.store.list_resources("Credential"):
            await self.credentials.refresh()
        await super().__aenter__()
        loop = asyncio.get_running_loop()

        def tell() -> None:
            if loop.is_closed():  # an engine that nobody closed hears nothing more
                return
            if self._processes is not None:
                self._processes.code_changed(loop)
            loop.call_soon_threadsafe(self.runtime.providers_changed)

        self._unwatch = shared.watch(tell)
        await self.settle_requests()
        if self._recovers:
            self.runtime.recover()
        if self._processes is not None:
            try:
                await self._processes.open()
            except BaseException:
                await self.__aexit__(None, None, None)
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._unwatch()
        if self._processes is not None:  # together: else those that stay would take up what the first ones leave
            stopping = asyncio.ensure_future(self._processes.close())
            try:
                await super().__aexit__(kind, error, trace)
            finally:
                await stopping
            return
        await super().__aexit__(kind, error, trace)

    async def _begin(self, document: "Document", input: Any, **how: Any) -> RunId:
        if self._processes is None or self.act is not None:
            return await super()._begin(document, input, **how)
        return await self._processes.start(document, input, **how)

    async def wait(self, run: RunId) -> "Ended":
        """Until the run has ended, in this process or in another."""
        ended = None if self._processes is None else await self._processes.wait(run)
        return await super().wait(run) if ended is None else ended

    async def resume(self, runs: Sequence[RunId] | None = None) -> None:
        """Take up what no live process owns: everything, or these runs; then also requests that nobody answered."""
        await super().resume(runs)
        if runs is None:
            await self.settle_requests()

    async def settle_requests(self) -> bool:
        """Answer requests that were made durable and never answered; what cannot be answered now waits on.

        False: there was none.
        """
        if "story" not in self.languages or not await self.store.list_resources(PENDING_REQUESTS):
            return False
        from perdure.services.story.triggers.requests import Requests

        await Requests(self).settle_pending()
        return True

    async def run_services(self, say: Callable[[str], None]) -> None:
        """What a server does besides driving runs, until it is cancelled: requests, schedules, retention."""
        from perdure.services import BACKGROUND_SERVICES

        targets = [target.partition(":") for target in BACKGROUND_SERVICES]
        await asyncio.gather(
            *(getattr(import_module(module), name)(self, say=say).run() for module, _, name in targets)
        )

    async def apply(
        self, texts: "Sequence[AppliedDocument]", namespace: str = ""
    ) -> "tuple[list[Change], list[Finding]]":
        """Put what these texts declare into the catalog; what they ask for begins."""
        from perdure.services.story.triggers.request_apply import apply, asks_for_runs

        if not await asks_for_runs(self, texts, namespace):
            return await super().apply(texts, namespace)
        return await apply(self, texts, namespace)

    async def trigger(
        self,
        story: str | Mapping[str, Any] | None = None,
        inputs: Any = None,
        *,
        token: str | None = None,
        key: str | None = None,
        impulse: str | None = None,
        namespace: str = "default",
        document: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Ask durably for a run of a Story of the catalog; answers with the StoryTrigger and its decision.

        Instead of a Story, `document` names a document of any language: `{"language": "playbook", "name": "etl"}`.
        With an `impulse`, `inputs` is the event it has heard of: its mapping, delivery policy and throttle apply.
        """
        from perdure.services.story.triggers.requests import Requests

        if impulse is None:
            if (story is None) == (document is None):
                raise PerdureError("a trigger names a Story, a document, or the Impulse that has heard of something")
            return await Requests(self).trigger(
                story, inputs, token=token, key=key, namespace=namespace, document=document
            )
        from perdure.services.story.triggers.impulses import Impulses

        return await Impulses(self).deliver(impulse, inputs, token=token, namespace=namespace)

    def impulse_events(self) -> "ImpulseEvents":
        """Events that come over HTTP, and the signatures that prove their senders."""
        from perdure.services.story.triggers.impulses import ImpulseEvents
        from perdure.workers.secrets import from_environment

        return ImpulseEvents(self, from_environment, lambda: self.credentials.secrets)

    async def publish(self, run: RunId, step: str, payload: Any = None, **members: Any) -> None:
        """Give a message to a step of a streaming Story; `members` are the keywords of `context.publish`."""
        from perdure.services.story.streams.bring_task import publish

        await publish(self, run, step, {"payload": payload, **members})


class Observer(Client):
    """Looks at a store and sends messages to runs, but runs nothing itself."""

    def __init__(self, url: str = DEFAULT_STORE, *, clock: Clock | None = None) -> None:
        clock = clock or SystemClock()
        super().__init__(open_store(url, clock, must_exist=True), languages(), clock, None)
