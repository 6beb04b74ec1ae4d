"""A change of a Workload as lines to paste into the user's own configuration, a text a language.

===========  ========================================================================================================
trainer      keywords of ``TrainingArguments``, by the names of the user's release of transformers
model        Python that makes the model: ``from_pretrained``, LoRA, frozen parameters
data         Python that makes its data: the tokenizer's call, the samples of evaluation
torch        Python of a loop written by hand, without the Trainer
deepspeed    a block of DeepSpeed's JSON configuration, after notes in lines that begin with ``#``
environment  a line for the shell, before the script
cli          the ``memdoctor`` command that probes the changed workload
===========  ========================================================================================================

A language is there where it can say something of the change; several may be needed for the whole of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from memdoctor.matrix import ALLOC_CONF, apply_change
from memdoctor.patches.command_line import command_line
from memdoctor.patches.data import data_lines
from memdoctor.patches.deepspeed import deepspeed_block
from memdoctor.patches.edit import Edit, release_of
from memdoctor.patches.environment import environment_line
from memdoctor.patches.loop import torch_lines
from memdoctor.patches.model import model_lines
from memdoctor.patches.trainer import trainer_lines
from memdoctor.records import Change, Workload

__all__ = ["LANGUAGES", "NOT_PATCHED", "patch_of"]

_OF_PYTHON: Mapping[str, Callable[[Edit], str]] = MappingProxyType({
    "trainer": trainer_lines, "model": model_lines, "data": data_lines, "torch": torch_lines,
    "deepspeed": deepspeed_block,
})  # fmt: skip
LANGUAGES = (*_OF_PYTHON, "environment", "cli")
"""The keys that a patch may have, in their order."""

NOT_PATCHED: Mapping[str, str] = MappingProxyType({
    "forward_passes": "how often the model is called on a batch is the design of the user's loss",
    "loop": "whose loop it is follows from the user's script",
    "strategy": "several GPUs are a launcher's matter, and cannot be probed yet",
    "world_size": "several GPUs are a launcher's matter, and cannot be probed yet",
})  # fmt: skip
"""Fields of a Workload that only the command line of memdoctor can say, and why."""


def patch_of(
    workload: Workload,
    change: Change,
    transformers: str,
    *,
    torch: str | None = None,
    gpu: str | None = None,
    memory: str | None = None,
    alloc_conf: str = "",
    command: str = "diagnose",
) -> Mapping[str, str]:
    """What to paste for ``change`` of ``workload``, by language, in the order of :data:`LANGUAGES`.

    Args:
        workload: What is trained without the change.
        change: Fields of it and their new values; :data:`ALLOC_CONF` too.
        transformers: The user's release of transformers, such as ``5.24.0``: it decides what settings are called.
        torch: The same of torch; ``None`` takes names that every release knows.
        gpu: The card, as ``--gpu`` has it; ``None`` leaves it to the command.
        memory: ``--memory``.
        alloc_conf: The allocator's settings without the change.
        command: The ``memdoctor`` command that shall probe it.

    Raises:
        ValueError: no such field, or a value that it cannot have.
    """
    settings = {name: value for name, value in change.items() if name != ALLOC_CONF}
    after = apply_change(workload, settings)
    conf = str(change.get(ALLOC_CONF, alloc_conf))
    edit = Edit(workload, after, release_of(transformers))
    texts = {language: say(edit) for language, say in _OF_PYTHON.items()}
    if conf != alloc_conf:
        texts["environment"] = environment_line(conf, release_of(torch))
    if edit.changed or conf != alloc_conf:
        texts["cli"] = command_line(after, gpu=gpu, memory=memory, alloc_conf=conf, command=command)
    return {language: texts[language] for language in LANGUAGES if texts.get(language)}
