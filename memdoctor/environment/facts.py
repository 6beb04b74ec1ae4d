"""The environment as lines to read, and as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from memdoctor.environment.gather import Environment
from memdoctor.environment.problems import find_problems
from memdoctor.environment.wording import process_text, told
from memdoctor.probes.cached import Usage
from memdoctor.probes.context import Context
from memdoctor.probes.nvml import GpuProcess, NoGpu, SeenGpu, Survey, Unknown
from memdoctor.probes.visibility import Visible
from memdoctor.units import format_bytes


def document(environment: Environment) -> dict[str, Any]:
    """Everything as JSON: the lines under ``environment``, and the same as data beside them."""
    return {
        "environment": facts(environment),
        "torch": plain(environment.torch),
        "gpus": plain(environment.gpus),
        "cuda_order": _order(environment.visible),
        "contexts": plain(environment.contexts),
        "probe_cache": _usage(environment.probe_cache),
        "problems": plain(find_problems(environment)),
    }


def _order(visible: Visible | None) -> dict[str, Any] | None:
    if visible is None:
        return None
    return {"uuids": [gpu.uuid for gpu in visible.gpus], "certain": visible.certain, "notes": list(visible.notes)}


def plain(value: Any) -> Any:
    """Records as JSON has them; what is unknown is an object that says why."""
    if isinstance(value, Unknown):
        return {"unknown": value.reason}
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, tuple | list) else value


def facts(environment: Environment) -> dict[str, str]:
    """What there is, as names and texts in the order in which they are shown."""
    packages = {name: version or "not installed" for name, version in environment.packages.items() if name != "pynvml"}
    if environment.packages.get("pynvml") is not None:
        packages["pynvml"] = f"{environment.packages['pynvml']} (deprecated)"
    return {
        "memdoctor": environment.memdoctor,
        "python": environment.python,
        **packages,
        **_torch(environment),
        "platform": environment.platform,
        "cpu cores": str(environment.cpu_cores or "unknown"),
        "probe cache": _cache(environment.probe_cache),
        "host memory": format_bytes(environment.host_memory_bytes),
        **{name: "not set" if text is None else text or "empty" for name, text in environment.variables.items()},
        **_gpus(environment.gpus, environment.contexts),
        **_cuda(environment.visible),
    }


def _usage(used: Usage | None) -> dict[str, Any] | None:
    return None if used is None else {"directory": str(used.directory), "probes": used.probes, "bytes": used.bytes}


def _cache(used: Usage | None) -> str:
    return "off" if used is None else f"{used.directory}, {used.probes} probes, {format_bytes(used.bytes)}"


def _torch(environment: Environment) -> dict[str, str]:
    build = environment.torch
    if build is None:
        return {}
    if isinstance(build.hip, str):
        return {"torch is built for": f"ROCm {build.hip}"}
    return {"torch is built for": f"CUDA {build.cuda}" if isinstance(build.cuda, str) else _without(build.cuda)}


def _without(cuda: Unknown | None) -> str:
    return "CPUs only" if cuda is None else told(cuda)


def _gpus(seen: Survey | NoGpu, contexts: Mapping[str, Context]) -> dict[str, str]:
    if isinstance(seen, NoGpu):
        return {"GPUs": f"none: {seen.reason}"}
    lines = {"driver": told(seen.driver), "CUDA of the driver": told(seen.cuda)}
    if not seen.gpus and not seen.unreadable:
        lines["GPUs"] = "none: NVML sees no GPU"
    for gpu in seen.gpus:
        lines |= _gpu(f"GPU {gpu.index}", gpu, contexts)
    return {**lines, **{f"GPU {gpu.index}": f"does not answer: {gpu.reason}" for gpu in seen.unreadable}}


def _gpu(title: str, gpu: SeenGpu, contexts: Mapping[str, Context]) -> dict[str, str]:
    used, total = format_bytes(gpu.used_bytes), format_bytes(gpu.total_bytes)
    kept = gpu.driver_keeps_bytes
    keeping = f", {format_bytes(kept)} more kept by the driver" if isinstance(kept, int) else ""
    lines = {
        title: f"{gpu.name}, {used} of {total} in use{keeping}, compute capability {gpu.compute_capability}",
        f"{title} UUID": gpu.uuid,
        f"{title} processes": _processes(gpu.processes),
        f"{title} context": _context(contexts.get(gpu.uuid)),
    }
    if gpu.is_instance:
        return lines
    lines |= {f"{title} bus": told(gpu.pci_bus_id), f"{title} compute mode": told(gpu.compute_mode)}
    if isinstance(gpu.mig, Unknown):
        return {**lines, f"{title} MIG": told(gpu.mig)}
    lines[f"{title} MIG"] = "on" if gpu.mig.on else "off"
    for number, part in enumerate(gpu.mig.instances):
        lines |= _gpu(f"{title} MIG {number}", part, contexts)
    return lines


def _cuda(visible: Visible | None) -> dict[str, str]:
    if visible is None:
        return {}
    if not visible.gpus:
        return {"CUDA": f"sees no GPU: {'; '.join(visible.notes)}"}
    lines = {f"CUDA {number}": f"GPU {gpu.index}, {gpu.uuid}" for number, gpu in enumerate(visible.gpus)}
    return lines if visible.certain else {**lines, "CUDA's order": f"a guess: {'; '.join(visible.notes)}"}


def _processes(processes: Sequence[GpuProcess] | Unknown) -> str:
    if isinstance(processes, Unknown):
        return told(processes)
    return ", ".join(map(process_text, processes)) or "none listed"


def _context(context: Context | None) -> str:
    if context is None:
        return "not measured here"
    return f"{format_bytes(context.context_bytes)} ± {format_bytes(context.error_bytes)}, {context.source}"
