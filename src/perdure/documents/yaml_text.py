"""Documents of a YAML text. Imported when the first text is read that is not JSON."""

from yaml import YAMLError
from yaml._yaml import CParser

from perdure.documents.document import Document
from perdure.documents.errors import LIMIT, Limits, UnreadableText
from perdure.documents.yaml_builder import EMPTY, YamlBuilder
from perdure.documents.yaml_errors import explain
from perdure.kernel.problems import Problem


def read_yaml(text: str, limits: Limits) -> tuple[Document, ...]:
    builder: YamlBuilder | None = None
    documents: list[Document] = []
    try:
        builder = YamlBuilder(CParser(text), text, limits)
        for index, (data, (line, column)) in enumerate(builder.documents()):
            if index >= limits.documents:
                message = f"the text holds more than {limits.documents} documents"
                raise UnreadableText([*builder.problems, Problem(LIMIT, message, line=line, column=column)])
            if data is not EMPTY:
                documents.append(Document(data, text, index))
    except YAMLError as error:
        earlier = builder.problems if builder is not None else []
        raise UnreadableText([*earlier, explain(error, text)]) from None
    if builder.problems:
        raise UnreadableText(builder.problems)
    return tuple(documents)
