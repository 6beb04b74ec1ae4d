"""``optim_args`` of TrainingArguments, such as ``momentum=0.9,nesterov=true``."""

from __future__ import annotations

from memdoctor.errors import InputError


def parse_optim_args(text: str) -> dict[str, str]:
    """Names and values, as ``transformers.trainer_optimizer._parse_optim_args`` splits them.

    Raises:
        InputError: a part is not ``name=value``.
    """
    arguments: dict[str, str] = {}
    for part in filter(None, text.replace(" ", "").split(",")):
        name, equals, value = part.partition("=")
        if not (name and equals and value) or "=" in value:
            raise InputError(
                f"optim_args {text!r} cannot be read",
                why=f"{part!r} is not name=value",
                hint="for example --optim-args momentum=0.9,nesterov=true",
            )
        arguments[name] = value
    return arguments
