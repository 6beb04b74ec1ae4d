"""What is wrong with a card: who is on it, what it lets in, and what it does not tell."""

from __future__ import annotations

from collections.abc import Iterator

from memdoctor.environment.wording import MAY_ASK, Problem, process_text
from memdoctor.probes.nvml import GpuProcess, SeenGpu, Unknown
from memdoctor.probes.seen import ComputeMode, Mig, ProcessState, Why
from memdoctor.units import MIB, format_bytes

# More than an idle card shows without any process; less than a training process holds. A judgement, not a reading.
UNACCOUNTED_BYTES = 512 * MIB
_GONE = (ProcessState.ZOMBIE, ProcessState.DEAD)


def card_problems(gpu: SeenGpu, own_pid: int, title: str = "") -> Iterator[Problem]:
    """Everything that is wrong with this card and its instances."""
    title = title or f"GPU {gpu.index}"
    yield from _processes(gpu, own_pid, title)
    if gpu.is_instance:
        return
    yield from _compute_mode(gpu, title)
    if not isinstance(gpu.mig, Unknown):
        yield from _mig(gpu.mig, title)
        for number, part in enumerate(gpu.mig.instances):
            yield from card_problems(part, own_pid, f"{title} MIG {number}")


def _processes(gpu: SeenGpu, own_pid: int, title: str) -> Iterator[Problem]:
    cut = isinstance(gpu.mig, Mig) and gpu.mig.on
    if isinstance(gpu.processes, Unknown):
        denied = gpu.processes.why is Why.NO_PERMISSION
        permission = " In MIG mode it takes the administrator's rights to ask." if cut else ""
        yield Problem(
            f"who uses {title} is not told: {gpu.processes.reason}",
            f"the driver does not list processes.{permission} The context is then measured by difference",
            f"{f'{MAY_ASK}; else ' if denied else ''}keep the card to yourself while memdoctor measures",
        )
        return
    others = [process for process in gpu.processes if process.pid != own_pid]
    gone = [process for process in others if process.state in _GONE]
    yield from (_gone(process, title) for process in gone)
    living = [process for process in others if process.state not in _GONE]
    if living and not cut:  # the processes of a card that is cut up are those of its instances
        yield Problem(
            f"{title} is in use by {', '.join(map(process_text, living))}",
            f"{format_bytes(gpu.used_bytes)} of {format_bytes(gpu.total_bytes)} are taken before training starts",
            "end what is not needed, or choose another card with CUDA_VISIBLE_DEVICES",
        )
    if any(process.used_bytes is None for process in others):
        mode = " in MIG mode" if cut or gpu.is_instance else ""
        yield Problem(
            f"what processes hold on {title} is not told",
            f"the driver lists them{mode} without their bytes",
            "the context is measured by difference: keep the card to yourself meanwhile",
        )
    elif not cut:
        yield from _unaccounted(gpu, title)


def _gone(process: GpuProcess, title: str) -> Problem:
    dead = process.state is ProcessState.DEAD
    return Problem(
        f"{'a dead process' if dead else 'a zombie'} holds memory of {title}: {process_text(process)}",
        "the driver lists it although it has ended" if dead else "it has ended, and its parent has not noticed",
        "restart what started it; where nothing helps, nvidia-smi --gpu-reset or a restart of the machine"
        if dead
        else f"end its parent (ps -o ppid= -p {process.pid}), which lets it go",
    )


def _unaccounted(gpu: SeenGpu, title: str) -> Iterator[Problem]:
    """Memory that no listed process holds, beyond what an idle card shows."""
    assert not isinstance(gpu.processes, Unknown)
    listed = sum(process.used_bytes or 0 for process in gpu.processes)
    missing = gpu.used_bytes - listed
    if missing >= UNACCOUNTED_BYTES and isinstance(gpu.driver_keeps_bytes, int):
        yield Problem(
            f"{format_bytes(missing)} of {title} are in use by nobody who is listed",
            "a process of another container, or one that has died and still holds it",
            "outside of containers: sudo fuser -v /dev/nvidia* shows who has the card open",
        )


def _compute_mode(gpu: SeenGpu, title: str) -> Iterator[Problem]:
    if gpu.compute_mode is ComputeMode.PROHIBITED:
        yield Problem(
            f"{title} lets no process in: its compute mode is prohibited",
            "CUDA cannot make a context on it",
            f"sudo nvidia-smi -i {gpu.index} -c DEFAULT",
        )
    elif gpu.compute_mode in (ComputeMode.EXCLUSIVE_PROCESS, ComputeMode.EXCLUSIVE_THREAD):
        yield Problem(
            f"{title} lets one process in: its compute mode is {gpu.compute_mode}",
            "while another process has a context there, CUDA says that the device is busy or unavailable",
            f"measure while nothing else runs on it, or sudo nvidia-smi -i {gpu.index} -c DEFAULT",
        )


def _mig(mig: Mig, title: str) -> Iterator[Problem]:
    if mig.on and not mig.instances:
        yield Problem(
            f"{title} is in MIG mode and has no instance that can be seen",
            "CUDA uses instances of such a card, not the card",
            "make one (nvidia-smi mig -cgi ... -C), or turn MIG mode off (nvidia-smi -mig 0)",
        )
