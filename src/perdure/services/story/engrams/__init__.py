"""Engrams: what the steps of a Story execute. Each is a provider like any other, named `engram:<template>@<version>`.

    @perdure.engram("greeter", version="1.0.0")
    def greet(inputs, context):
        return {"text": f"Hello, {inputs['name']}"}

It also stands in the catalog of every Story: as an EngramTemplate of that name and as an Engram in `default`.
"""
