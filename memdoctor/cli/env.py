"""``memdoctor env``: the environment, for a bug report."""

from __future__ import annotations

import os
import platform
from importlib import metadata

import rich_click as click

from memdoctor import __version__
from memdoctor.cli.options import AS_JSON, VERBOSE, options
from memdoctor.cli.output import print_json

PACKAGES = ("torch", "transformers", "accelerate", "pydantic", "click", "rich", "nvidia-ml-py", "pynvml", "numpy")


@click.command("env")
@options((AS_JSON, VERBOSE))
def command(as_json: bool) -> None:
    """The environment, for a bug report: versions, the machine, its GPUs."""
    facts = {**_software(), **_machine(), **_gpus()}
    if as_json:
        print_json({"environment": facts})
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        click.echo(f"{name:<{width}}  {value}")


def _software() -> dict[str, str]:
    versions = {name: _version(name) for name in PACKAGES}
    facts = {"memdoctor": __version__, "python": platform.python_version()}
    facts |= {name: version or "not installed" for name, version in versions.items() if name != "pynvml"}
    if versions["pynvml"] is not None:
        facts["warning"] = "the distribution called pynvml is deprecated: uninstall it, keep nvidia-ml-py"
    return facts


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _machine() -> dict[str, str]:
    import psutil

    from memdoctor.units import format_bytes

    return {
        "platform": platform.platform(),
        "cpu cores": str(os.cpu_count()),
        "host memory": format_bytes(psutil.virtual_memory().total),
        "PYTORCH_CUDA_ALLOC_CONF": os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "not set"),
    }


def _gpus() -> dict[str, str]:
    from memdoctor.probes.nvml import NoGpu, driver_version, see_gpus
    from memdoctor.units import format_bytes

    seen = see_gpus()
    if isinstance(seen, NoGpu):
        return {"GPUs": f"none: {seen.reason}"}
    facts = {"driver": driver_version() or "unknown"}
    for index, gpu in enumerate(seen):
        used, total = format_bytes(gpu.used_bytes), format_bytes(gpu.total_bytes)
        facts[f"GPU {index}"] = f"{gpu.name}, {used} of {total} in use, compute capability {gpu.compute_capability}"
    return facts
