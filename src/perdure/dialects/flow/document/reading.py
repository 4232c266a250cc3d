from perdure.kernel import jsontext
from perdure.dialects.flow.compiling import compile_program
FLOW_SCHEMA = "https://mwl.dev/v0.1/flow/schema.json"
def read(text, catalog):
    return compile_program(jsontext.read_strict(text), catalog), []
