"""Which torch is installed and for which CUDA it was built, read from its files: importing it takes seconds."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from memdoctor.probes.seen import Unknown


@dataclass(frozen=True, slots=True)
class TorchBuild:
    """The installed torch. ``cuda`` is ``None`` for a build without CUDA, and of a ROCm build ``hip`` is set."""

    version: str
    cuda: str | Unknown | None
    hip: str | Unknown | None


def torch_build() -> TorchBuild | None:
    """The torch that would be imported, or ``None`` where none is installed."""
    try:
        distribution = metadata.distribution("torch")
    except metadata.PackageNotFoundError:
        return None
    constants = _constants(Path(str(distribution.locate_file("torch/version.py"))))
    if isinstance(constants, Unknown):
        return TorchBuild(distribution.version, constants, constants)
    return TorchBuild(constants.get("__version__") or distribution.version, constants.get("cuda"), constants.get("hip"))


def _constants(path: Path) -> dict[str, str | None] | Unknown:
    """The names that torch/version.py (written by tools/generate_torch_version.py) sets to a text or to None."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError) as error:
        return Unknown(f"{path.name} of torch cannot be read: {error}")
    found: dict[str, str | None] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            targets = statement.targets
        elif isinstance(statement, ast.AnnAssign):
            targets = [statement.target]
        else:
            continue
        if isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, str | None):
            found |= {target.id: statement.value.value for target in targets if isinstance(target, ast.Name)}
    return found if "cuda" in found else Unknown(f"{path.name} of torch does not say")
