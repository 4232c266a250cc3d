"""Runs under a session key (STY-159): one at a time for each key, until the key is forgotten."""

from typing import Any

from perdure.dialects.story.resources.resource import Resource
from perdure.dialects.story.triggers.requests import LANGUAGE
from perdure.engine.client import Client
from perdure.engine.random_ids import run_id_for_name
from perdure.kernel.errors import Conflict
from perdure.kernel.ids import DEFAULT_NAMESPACE
from perdure.kernel.json_values.values import RunId
from perdure.services.story.triggers.requests import Requests


class SessionActive(Conflict):
    """The session has a run that has not ended."""

    code = "SESSION-ACTIVE"
    hint = "Stop the session first, or wait for the end of its run."


class Sessions:
    """The sessions of one process, for callers such as connections that have one run at a time."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._runs: dict[tuple[str, str], RunId | None] = {}  # by namespace and key

    async def start(
        self,
        key: str,
        story: str,
        inputs: dict[str, Any] | None = None,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        **options: Any,
    ) -> Resource:
        """Start a Story under the key; raises `SessionActive` while the session has a run that has not ended."""
        session = namespace, key
        if session in self._runs and await self.is_active(key, namespace):
            raise SessionActive(f"session {key!r} has a run that has not ended", session=key)
        self._runs[session] = None  # reserved before the first await, so that concurrent starts conflict
        try:
            decided = await Requests(self._client).trigger(story, inputs, namespace=namespace, **options)
        except BaseException:
            self._runs.pop(session, None)
            raise
        run = decided["status"].get("storyRunRef")
        if run is None:
            self._runs.pop(session, None)
        elif session in self._runs:
            self._runs[session] = run_id_for_name(LANGUAGE, run["namespace"], run["name"])
        return decided

    async def is_active(self, key: str, namespace: str = DEFAULT_NAMESPACE) -> bool:
        if (namespace, key) not in self._runs:
            return False
        run = self._runs[namespace, key]
        row = None if run is None else await self._client.store.find(run)
        return run is None or (row is not None and not row.status.is_final)

    async def stop(
        self, key: str, reason: str = "the session was stopped", *, namespace: str = DEFAULT_NAMESPACE
    ) -> bool:
        """Cancel the run of the key; False if there is no open run."""
        run = self._runs.get((namespace, key))
        if run is None or not await self.is_active(key, namespace):
            return False
        await self._client.cancel(run, reason)
        return True

    def forget(self, key: str, namespace: str = DEFAULT_NAMESPACE) -> None:
        """Drop the key; its run continues."""
        self._runs.pop((namespace, key), None)
