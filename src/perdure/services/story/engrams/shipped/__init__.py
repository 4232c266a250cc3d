"""Engrams that are shipped with Perdure, under the names that Stories use. Each module has a `TEMPLATE`."""

VERSION = "1.0.0"

_HERE = "perdure.services.story.engrams.shipped"

TEMPLATES = {
    "echo": f"{_HERE}.echo",
    "http-request": f"{_HERE}.http_request",
    "json-filter": f"{_HERE}.json_filter",
    "map-reduce-adapter": f"{_HERE}.map_reduce",
    "materialize": f"{_HERE}.materialize",
}
"""Modules by template."""

WITHOUT_CODE = frozenset({"map-reduce-adapter"})
"""Templates that the run of a Story executes itself."""

PROVIDERS = {f"engram:{name}@{VERSION}": TEMPLATES[name] for name in TEMPLATES if name not in WITHOUT_CODE}
"""Modules by provider; each has a `PROVIDER`."""
