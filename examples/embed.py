"""Perdure inside a program of your own: a provider, a document, a run, its answer."""

import asyncio
import sys

import perdure


@perdure.provider("shout")
def shout(text: str) -> str:
    """Say it louder."""
    return text.upper() + "!"


async def main(store: str) -> None:
    document = {"drill": 1, "name": "shouting", "steps": [{"call": "shout", "with": {"text": "$input"}}]}
    async with perdure.Engine(store) as engine:
        run = await engine.start(document, input="hello from a durable run")
        print(await run.result())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "sqlite:///perdure.db"))
