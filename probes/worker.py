"""The worker process: imports torch once, then answers probe requests, one JSON line each way.

Run as ``python -m memdoctor.probes.worker BACKEND``. Standard output carries answers and nothing else; whatever a
library prints goes to standard error. The end of standard input ends the process when all is answered, and at once,
whatever it does, when the caller is gone.
"""

from __future__ import annotations

import gc
import json
import os
import queue
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from memdoctor.codec import examination_to_json, from_json, to_json
from memdoctor.errors import InputError, MeasureError, MemdoctorError, UsageError
from memdoctor.probes.imports import broken_library, import_refusal
from memdoctor.records import Backend, Device, Examination, Verification, VerificationPlan, Workload


def main(backend: Backend) -> None:
    """Answer requests until standard input ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    _quieten()
    requests: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests, os.getppid()), daemon=True).start()
    while (line := requests.get()) is not None:
        answers.write(json.dumps(_answer(backend, json.loads(line)), separators=(",", ":")) + "\n")
        answers.flush()
        gc.collect()  # before the next probe freezes what is there: a model in a cycle would stay, on a GPU too


def _read(requests: queue.SimpleQueue[str | None], caller: int) -> None:
    for line in sys.stdin:
        requests.put(line)
    requests.put(None)
    while os.getppid() == caller:
        time.sleep(0.05)
    os._exit(0)  # nobody waits for the answer to what is under way


def _quieten() -> None:
    """A probe's messages are its answers; libraries' advice about a training run that never happens is not."""
    warnings.simplefilter("ignore")
    os.environ.update(TRANSFORMERS_VERBOSITY="error", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")


def _probe_of(backend: Backend) -> Callable[[Workload, Device, Mapping[str, Any], str, int], Examination]:
    if backend is Backend.GPU:
        from memdoctor.probes.gpu import measure

        return measure
    if backend is Backend.CPU:
        from memdoctor.probes.cpu import run_on_cpu

        return run_on_cpu
    from memdoctor.probes.simulated.probe import simulate

    return simulate


def _verify(workload: Workload, device: Device, request: Mapping[str, Any]) -> Verification:
    from memdoctor.probes.verification.run import verify

    plan = from_json(VerificationPlan, request["verification"])
    return verify(workload, device, request["config"], request["model_source"], plan)


def configure_allocator(environ: MutableMapping[str, str], conf: str) -> None:
    """What PyTorch's allocator reads when the first tensor is made. Without settings it must not see an empty text."""
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        environ.pop(name, None)
    if conf:
        environ["PYTORCH_ALLOC_CONF"] = conf


def _answer(backend: Backend, request: dict[str, Any]) -> dict[str, Any]:
    try:
        workload, device = from_json(Workload, request["workload"]), from_json(Device, request["device"])
        if backend is Backend.GPU:
            configure_allocator(os.environ, device.alloc_conf)
        if (broken := broken_library()) is not None:
            return _told(broken)
        if request.get("verification"):
            return {"verification": to_json(_verify(workload, device, request))}
        probe = _probe_of(backend)
        gc.freeze()  # what was imported lives to the end: later collections need not look at it
        examination = probe(workload, device, request["config"], request["model_source"], request["steps"])
        return {"examination": examination_to_json(examination)}
    except MemdoctorError as error:
        return _told(error)
    except Exception as error:  # noqa: BLE001 - the parent raises it, with this traceback
        refused = import_refusal(error) if isinstance(error, ImportError) else None
        return {"bug": traceback.format_exc()} if refused is None else _told(refused)


def _told(error: MemdoctorError) -> dict[str, Any]:
    return {"error": type(error).__name__, "what": error.what, "why": error.why, "hint": error.hint}


def error_of(answer: dict[str, Any]) -> MemdoctorError:
    """The error that an answer carries, for the parent to raise."""
    kind = {"InputError": InputError, "UsageError": UsageError}.get(answer["error"], MeasureError)
    return kind(answer["what"], why=answer["why"], hint=answer["hint"])


if __name__ == "__main__":
    main(Backend(sys.argv[1]))
