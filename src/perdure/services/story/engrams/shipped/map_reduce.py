"""`map-reduce-adapter`: a child Story for every item, and optionally one for their results.

There is no code here: the Story's own run starts the children and waits for them without occupying a worker. This
module only describes the configuration.
"""

from perdure.services.story.engrams.engram_resources import template
from perdure.services.story.engrams.shipped import VERSION

_STORY = {
    "storyRef": {"type": "object", "required": ["name"]},
    "story": {"type": "object"},
    "inputs": {"type": "object"},
}

TEMPLATE = template(
    "map-reduce-adapter",
    VERSION,
    description="Runs a Story for every item, some at a time, and optionally another one over their results.",
    config_schema={
        "type": "object",
        "properties": {
            "defaultBatchSize": {"type": "integer", "minimum": 1, "default": 100},
            "defaultConcurrency": {"type": "integer", "minimum": 1, "default": 10},
            "maxBatchSize": {"type": "integer", "minimum": 0},
            "maxConcurrency": {"type": "integer", "minimum": 0},
            "defaultFailFast": {"type": "boolean", "default": True},
            "defaultAllowFailures": {"type": "boolean", "default": False},
            "defaultInlineResultsLimit": {"type": "integer", "minimum": 0, "default": 0},
            "pollInterval": {"type": "string"},
            "defaultStoryRunTTLSeconds": {"type": "integer"},
            "defaultStoryRunRetentionSeconds": {"type": "integer"},
        },
    },
    input_schema={
        "type": "object",
        "required": ["items", "map"],
        "properties": {
            "items": {},
            "context": {"type": "object"},
            "inputs": {"type": "object"},
            "map": {
                "type": "object",
                "properties": {
                    **_STORY,
                    "batchSize": {"type": "integer", "minimum": 1},
                    "concurrency": {"type": "integer", "minimum": 1},
                    "failFast": {"type": "boolean"},
                    "allowFailures": {"type": "boolean"},
                    "inlineResultsLimit": {"type": "integer", "minimum": 0},
                    "pollInterval": {"type": "string"},
                    "storyRunTTLSeconds": {"type": "integer"},
                    "storyRunRetentionSeconds": {"type": "integer"},
                },
            },
            "reduce": {
                "type": "object",
                "properties": {
                    **_STORY,
                    "pollInterval": {"type": "string"},
                    "storyRunTTLSeconds": {"type": "integer"},
                    "storyRunRetentionSeconds": {"type": "integer"},
                },
            },
        },
    },
)
