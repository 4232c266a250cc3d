"""Engrams: the code that steps of a Story execute. Each is a provider named `engram:<template>@<version>`.

    @perdure.engram("greeter", version="1.0.0")
    def greet(inputs, context):
        return {"text": f"Hello, {inputs['name']}"}

It also appears in the catalog of every Story: as an EngramTemplate of that name and as an Engram in `default`.
"""
