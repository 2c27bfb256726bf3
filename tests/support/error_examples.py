"""An instance of any error of the sink, with made-up facts."""

import inspect

from kafka_sink.errors import KafkaSinkError

MADE_UP = {
    "Mapping[str, int]": {"HeaderKeyNull": 7}, "Sequence[tuple[int, int]]": [(3, 4)], "float": 0.25, "bool": True,
}  # fmt: skip


def example(cls: type[KafkaSinkError], *, is_whole: bool = True) -> KafkaSinkError:
    """The facts have the right types, by the signature; a flag that has a default has that. Unless `is_whole` every
    fact that has a default has that."""
    facts = {}
    for name, parameter in inspect.signature(cls).parameters.items():
        annotation = str(parameter.annotation)
        if parameter.default is not parameter.empty and (annotation == "bool" or not is_whole):
            continue
        text = [f"<{name}>"] if annotation == "Sequence[str]" else f"<{name}>"
        number = 7 if annotation.startswith("int") else [3] if "Sequence[int]" in annotation else text
        facts[name] = MADE_UP.get(annotation, number)
    return cls(**facts)
