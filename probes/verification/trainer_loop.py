"""The real Trainer of transformers as a loop: only its data and its optimizer are given to it."""

from __future__ import annotations

import importlib.util
import tempfile
from itertools import count
from typing import Any

from memdoctor.errors import InputError, MeasureError, MemdoctorError
from memdoctor.probes.failures import host_out_of_memory, refusal
from memdoctor.probes.verification.loops import LoopJob

_INSTALL = "pip install 'accelerate>=1.1' (the extra trainer), or --loop package.module:function"


def require() -> None:
    """Say what is missing before anything runs, and import the rest.

    Raises:
        MeasureError: accelerate is not installed, or what the Trainer imports is not.
    """
    if importlib.util.find_spec("accelerate") is None:
        raise MeasureError(
            "the real Trainer cannot run here", why="it needs accelerate, which is not installed", hint=_INSTALL
        )
    try:
        from transformers import Trainer  # noqa: F401 - the wait is here, and what it made is there from the start
    except ImportError as error:
        raise _cannot(error) from error


def run(job: LoopJob) -> None:
    """Train for one epoch over the micro-batches, in their order, with the optimizer that is given.

    Raises:
        InputError: the batch has no names, by which the Trainer hands it to the model.
        MeasureError: the Trainer, accelerate or the model refuses.
    """
    if any(name.isdigit() for name in job.batches[0]):
        raise InputError(
            "the Trainer cannot train on this batch",
            why="it calls the model by the names of forward's parameters, and the batch has none",
            hint="a mapping from the factory, or --loop package.module:function",
        )
    try:
        with tempfile.TemporaryDirectory() as folder:
            _trainer(job, folder).train()
    except ImportError as error:
        raise _cannot(error) from error
    except MemdoctorError:
        raise
    except Exception as error:
        raise host_out_of_memory(error) or refusal(error) or error from error


def _cannot(error: ImportError) -> MeasureError:
    return MeasureError("the real Trainer cannot run here", why=str(error).strip(), hint=_INSTALL)


def _trainer(job: LoopJob, folder: str) -> Any:
    from transformers import Trainer, TrainingArguments

    rows, numbers = job.workload.batch_size, count()
    arguments = TrainingArguments(
        folder, per_device_train_batch_size=rows, gradient_accumulation_steps=job.accumulation, num_train_epochs=1,
        max_grad_norm=job.workload.max_grad_norm, label_smoothing_factor=job.workload.label_smoothing_factor,
        learning_rate=job.optimizer.param_groups[0]["lr"], lr_scheduler_type="constant", use_cpu=True, report_to=[],
        disable_tqdm=True, logging_strategy="no", save_strategy="no", dataloader_pin_memory=False,
    )  # fmt: skip
    trainer = Trainer(
        model=job.model, args=arguments, train_dataset=list(range(rows * len(job.batches))),
        data_collator=lambda _: dict(job.batches[next(numbers)]), optimizers=(job.optimizer, None),
    )  # fmt: skip
    from transformers.trainer_callback import PrinterCallback

    trainer.remove_callback(PrinterCallback)
    return trainer
