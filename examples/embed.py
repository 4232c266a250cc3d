"""Perdure inside your own program: a provider, a document, a run and its result."""

import asyncio
import sys

import perdure


@perdure.provider("shout")
def shout(text: str) -> str:
    """Return the text in upper case."""
    return text.upper() + "!"


FLOW = {
    "$schema": "https://mwl.dev/v0.1/flow/schema.json",
    "entrypoint": "shout",
    "steps": {
        "shout": {
            "action": "Call",
            "call": {"provider": "mwl:provider.call/perdure/shout/v1", "with": {"text": "{{ call.input }}"}},
            "next": "done",
        },
        "done": {"action": "Return"},
    },
}


async def main(store: str) -> None:
    async with perdure.Engine(store) as engine:
        run = await engine.start(FLOW, input="hello from a durable run")
        print(await run.result())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "sqlite:///perdure.db"))
