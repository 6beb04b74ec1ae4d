"""What a build of torch needs of the driver and of the card."""

from __future__ import annotations

from collections.abc import Sequence

from memdoctor.environment.wording import Problem
from memdoctor.probes.nvml import SeenGpu, Survey

Version = tuple[int, ...]

# The oldest driver for a major version of CUDA. Source: CUDA Compatibility, "Minor Version Compatibility", table 1
# (docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html).
OLDEST_DRIVERS: dict[int, int] = {11: 450, 12: 525, 13: 580}
# The oldest torch that memdoctor runs with, and the oldest CUDA that its wheels are built for. Source: as below.
_ANY = "torch 2.11 or newer for CUDA 12.6 or newer"
_LEAST = OLDEST_DRIVERS[12]
# The lowest and highest capability that PyTorch's wheels have code for from 2.11 on, by the oldest CUDA for which it
# holds. Source: "PyTorch CUDA Support Matrix" in RELEASE.md as of pytorch/pytorch pull request 175253: with CUDA 12.6
# Maxwell to Hopper, with 12.8 and 13.0 Turing to Blackwell, the newest, and no end is set there.
CAPABILITIES: tuple[tuple[Version, Version, Version | None], ...] = (
    ((12, 8), (7, 5), None),
    ((12, 6), (5, 0), (9, 0)),
)


def driver_problem(cuda: str, seen: Survey) -> list[Problem]:
    """A driver that is older than torch's CUDA allows."""
    needed, driver = _version(cuda), _version(seen.driver if isinstance(seen.driver, str) else "")
    newest = _version(seen.cuda if isinstance(seen.cuda, str) else "")
    if not needed or not driver:
        return []
    oldest = OLDEST_DRIVERS.get(needed[0])
    too_old = driver[0] < oldest if oldest is not None else bool(newest) and newest[0] < needed[0]
    if not too_old:
        return []
    wanted = f"driver {oldest} or newer" if oldest is not None else f"a driver for CUDA {needed[0]}"
    update = f"update the driver to {f'{oldest} or newer' if oldest is not None else f'one for CUDA {needed[0]}'}"
    if driver[0] >= _LEAST:
        hint = f"{update}, or install a torch for CUDA {_newest_for(driver)}.x"
    elif oldest == _LEAST:
        hint = update
    else:
        hint = f"{update}; memdoctor runs with {_ANY}, which needs {_LEAST} or newer"
    return [
        Problem(
            f"the driver is too old for this torch: {_driver_text(seen)}",
            f"torch is built for CUDA {cuda}, which needs {wanted} (NVIDIA, CUDA Compatibility)",
            hint,
        )
    ]


def driver_problem_of_any(seen: Survey) -> list[Problem]:
    """A driver that is too old for every torch that memdoctor runs with: where none for CUDA is installed yet."""
    driver = _version(seen.driver if isinstance(seen.driver, str) else "")
    if not driver or driver[0] >= _LEAST:
        return []
    newest = max(OLDEST_DRIVERS)
    return [
        Problem(
            f"the driver is too old for any torch for CUDA: {_driver_text(seen)}",
            f"memdoctor runs with {_ANY}, which needs driver {_LEAST} or newer (NVIDIA, CUDA Compatibility)",
            f"update the driver to {_LEAST} or newer, for CUDA {newest}.x to {OLDEST_DRIVERS[newest]} or newer",
        )
    ]


def suitable_cuda(seen: Survey) -> str:
    """The newest CUDA whose builds the driver runs, as `` 12.x``; nothing where it runs all that are known, or none."""
    driver = _version(seen.driver if isinstance(seen.driver, str) else "")
    runs = bool(driver) and _LEAST <= driver[0] < OLDEST_DRIVERS[max(OLDEST_DRIVERS)]
    return f" {_newest_for(driver)}.x" if runs else ""


def _newest_for(driver: Version) -> int:
    return max(major for major, oldest in OLDEST_DRIVERS.items() if driver[0] >= oldest)


def _driver_text(seen: Survey) -> str:
    return f"{seen.driver}, which runs CUDA up to {seen.cuda}" if isinstance(seen.cuda, str) else str(seen.driver)


def capability_problems(cuda: str, gpus: Sequence[SeenGpu]) -> list[Problem]:
    """Cards that PyTorch's own wheels for this CUDA have no code for."""
    version = _version(cuda)
    row = next((row for row in CAPABILITIES if version >= row[0]), None)
    if row is None:
        return []
    return [problem for gpu in gpus if (problem := _capability_problem(cuda, gpu, *row[1:])) is not None]


def _capability_problem(cuda: str, gpu: SeenGpu, lowest: Version, highest: Version | None) -> Problem | None:
    what = f"torch's wheels for CUDA {cuda} have no code for GPU {gpu.index}, {gpu.name}"
    capability = _version(gpu.compute_capability)
    if capability < lowest:
        return Problem(
            what,
            f"its compute capability is {gpu.compute_capability}, and they begin at {_text(lowest)}",
            "a torch for CUDA 12.6, or one built for this card",
        )
    # Within a major capability code runs on later cards too.
    if highest is not None and capability[0] > highest[0]:
        return Problem(
            what,
            f"its compute capability is {gpu.compute_capability}, and they end at {_text(highest)}",
            "a torch for CUDA 12.8 or newer",
        )
    return None


def _version(text: str) -> Version:
    """``580.65.06`` as numbers that compare; nothing where it does not begin with a number."""
    numbers: list[int] = []
    for part in text.split("."):
        if not (part.isascii() and part.isdecimal()):
            break
        numbers.append(int(part))
    return tuple(numbers)


def _text(version: Version) -> str:
    return ".".join(map(str, version))
