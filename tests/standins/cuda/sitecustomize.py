"""In a process with CUDA_STANDIN set, the GPU probe finds the card that it describes: see cuda_machine."""

import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

PROBE = "memdoctor.probes.gpu"


class Finder(MetaPathFinder):
    """Finds the probe where it is, and changes what it asks for the card."""

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path) if name == PROBE else None
        if spec is None or spec.loader is None:
            return None
        loader: Any = spec.loader
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            from cuda_machine import install

            install(module)

        loader.exec_module = exec_module
        return spec


if "CUDA_STANDIN" in os.environ:
    sys.meta_path.insert(0, Finder())
