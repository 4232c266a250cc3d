"""Resources in texts: read, judged beside each other, and every problem named with its place and its remedy."""

from perdure.dialects.story.document.validation import ValidatedResources, tidied, validate, validate_resource

__all__ = ["ValidatedResources", "tidied", "validate", "validate_resource"]
