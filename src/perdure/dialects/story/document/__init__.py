"""Resources in texts: parsing and validation. Every problem is reported with its position and a hint."""

from perdure.dialects.story.document.validation import ValidatedResources, tidied, validate, validate_resource

__all__ = ["ValidatedResources", "tidied", "validate", "validate_resource"]
