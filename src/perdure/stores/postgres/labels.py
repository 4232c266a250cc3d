"""Labels as `jsonb`, so that they can be searched by what they contain."""

import json
from collections.abc import Mapping

from perdure.stores.postgres.wire import storable


def jsonb(labels: Mapping[str, str]) -> str:
    return json.dumps({storable(name): storable(value) for name, value in labels.items()})
