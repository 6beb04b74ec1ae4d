"""What every language is given: the workload before and after, and the release of transformers that is to read it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields

from memdoctor.records import Workload

Release = tuple[int, int]
"""Major and minor version; :data:`UNKNOWN` where it is not known."""

UNKNOWN: Release = (0, 0)
ACTIVATION_CHECKPOINTING: Release = (5, 23)
"""transformers' first with ``activation_checkpointing``; ``gradient_checkpointing`` is its deprecated alias since."""
EVERY_N_LAYERS: Release = (5, 17)
"""A release of transformers whose ``gradient_checkpointing_enable`` takes ``every_n_layers`` (pull request 48200)."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A change, applied."""

    before: Workload
    after: Workload
    release: Release

    @property
    def changed(self) -> frozenset[str]:
        """The fields that differ."""
        names = (item.name for item in fields(Workload))
        return frozenset(name for name in names if getattr(self.before, name) != getattr(self.after, name))

    @property
    def checkpointing(self) -> str:
        """What this release calls it: the stem of keywords and methods."""
        return "activation_checkpointing" if self.release >= ACTIVATION_CHECKPOINTING else "gradient_checkpointing"

    @property
    def says_checkpointing(self) -> bool:
        """Whether checkpointing is switched, or set up otherwise where it is on, in words that this release knows."""
        if self.before.gradient_checkpointing and not self.after.gradient_checkpointing:
            return True
        told = {"gradient_checkpointing", "use_reentrant", "every_n_layers"} & self.changed
        known = self.after.every_n_layers == 1 or self.release >= EVERY_N_LAYERS
        return bool(told) and self.after.gradient_checkpointing and known


def release_of(version: str | None) -> Release:
    """Major and minor of a version such as ``5.24.0.dev0``."""
    match = re.match(r"(\d+)\.(\d+)", version or "")
    return (int(match[1]), int(match[2])) if match else UNKNOWN


def snippet(lines: Iterable[str]) -> str:
    """Python of these lines, what they import first and once."""
    imports: dict[str, None] = {}
    statements = []
    for line in lines:
        if line.startswith(("import ", "from ")):
            imports[line] = None
        else:
            statements.append(line)
    return "\n".join((*imports, *([""] if imports and statements else ()), *statements))


def literal(value: object) -> str:
    """The value in Python, strings in double quotes, tuples as lists."""
    if isinstance(value, str):
        return json.dumps(str(value), ensure_ascii=False)
    if isinstance(value, tuple):
        return f"[{', '.join(map(literal, value))}]"
    return repr(value)


def is_factory(model: str) -> bool:
    """Whether the model is the user's own ``package.module:function``, which no ``from_pretrained`` makes."""
    return re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", model) is not None
