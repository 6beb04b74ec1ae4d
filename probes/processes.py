"""What a process is called and whether it lives, through psutil where it is installed."""

from __future__ import annotations

import sys
from pathlib import Path

from memdoctor.probes.seen import ProcessState, Unknown, Why

# The inode of the namespace that has all processes of the machine; Linux, include/linux/proc_ns.h, PROC_PID_INIT_INO.
_INITIAL_PID_NAMESPACE = 0xEFFFFFFC


def look_up(pid: int) -> tuple[str | Unknown, ProcessState]:
    """Name and state of a process; a pid that is not here is dead only where all processes can be seen."""
    try:
        import psutil
    except ImportError:
        return Unknown("psutil is not installed"), ProcessState.UNKNOWN
    try:
        process = psutil.Process(pid)
        if process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return _name(process), ProcessState.ZOMBIE
        return _name(process), ProcessState.ALIVE
    except psutil.ZombieProcess:
        return Unknown("it is a zombie"), ProcessState.ZOMBIE
    except psutil.NoSuchProcess:
        absent = ProcessState.DEAD if sees_all_processes() else ProcessState.UNSEEN
        return Unknown(f"there is no process {pid} here"), absent
    except psutil.AccessDenied:
        return Unknown("no permission to ask for its name", Why.NO_PERMISSION), ProcessState.ALIVE
    except (psutil.Error, OSError, ValueError) as error:
        return Unknown(f"it cannot be asked: {error}"), ProcessState.UNKNOWN


def sees_all_processes() -> bool:
    """Whether a process of this machine that we do not see is not there: false in a container."""
    if sys.platform != "linux":
        return True
    try:
        return Path("/proc/self/ns/pid").stat().st_ino == _INITIAL_PID_NAMESPACE
    except OSError:
        return False


def _name(process: object) -> str | Unknown:
    import psutil

    assert isinstance(process, psutil.Process)
    try:
        return process.name() or Unknown("it has no name")
    except psutil.ZombieProcess:
        return Unknown("it is a zombie")
    except psutil.AccessDenied:
        return Unknown("no permission to ask for its name", Why.NO_PERMISSION)
