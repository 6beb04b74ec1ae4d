"""Any workload, written as a command of memdoctor, is read as that workload."""

from __future__ import annotations

import shlex
from typing import Any

from hypothesis import given, settings, strategies as st

from memdoctor.cli.diagnose import command
from memdoctor.cli.options import asked
from memdoctor.patches.command_line import command_line
from memdoctor.records import Attention, Dtype, Loop, Precision, Task, Workload

COUNTS = st.integers(1, 10_000)
SHARES = st.floats(0, 1, exclude_max=True)
# Not empty, since that is how nothing is said; and what a shell, click and Python could take for something else.
WORDS = st.text(min_size=1).filter(lambda text: "\0" not in text)
NAMES = st.lists(WORDS, max_size=3).map(tuple)
MAYBE = st.none() | COUNTS
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "model": WORDS.filter(lambda text: not text.startswith("-")), "task": st.sampled_from(Task), "num_labels": COUNTS,
    "batch_size": COUNTS, "seq_length": COUNTS, "padded": st.booleans(), "precision": st.sampled_from(Precision),
    "dtype": st.sampled_from(Dtype), "attention": st.none() | st.sampled_from(Attention),
    "gradient_checkpointing": st.booleans(), "use_reentrant": st.booleans(), "every_n_layers": COUNTS,
    "optimizer": WORDS, "optim_args": st.text().filter(lambda text: "\0" not in text), "optim_target_modules": NAMES,
    "gradient_accumulation_steps": COUNTS, "max_grad_norm": st.floats(0, 1e9), "label_smoothing_factor": SHARES,
    "torch_empty_cache_steps": MAYBE, "forward_passes": COUNTS, "loop": st.sampled_from(Loop),
    "zero_grad_set_to_none": st.booleans(), "freeze": NAMES, "lora_rank": st.integers(0, 512), "lora_dropout": SHARES,
    "lora_target_modules": NAMES, "evaluate": st.booleans(), "eval_batch_size": COUNTS, "eval_samples": COUNTS,
    "eval_accumulation_steps": MAYBE, "prediction_loss_only": st.booleans(), "output_hidden_states": st.booleans(),
    "strategy": st.sampled_from(["single", "ddp", "fsdp", "zero1", "zero2", "zero3"]), "world_size": COUNTS,
}  # fmt: skip


def possible(drawn: dict[str, Any]) -> bool:
    """Whether a Workload takes the combination."""
    half = drawn.get("dtype", Dtype.FLOAT32) is not Dtype.FLOAT32 and not drawn.get("lora_rank")
    return not (half and drawn.get("precision") is Precision.FP16)


@settings(max_examples=300, deadline=None)
@given(
    st.fixed_dictionaries({"model": FIELDS["model"]}, optional={k: v for k, v in FIELDS.items() if k != "model"})
    .filter(possible)
    .map(lambda drawn: Workload(**drawn))
)
def test_a_command_is_read_as_the_workload_it_was_written_for(workload: Workload) -> None:
    line = command_line(workload, gpu="T4", memory=None, alloc_conf="", command="diagnose")
    program, name, *arguments = shlex.split(line)
    assert (program, name) == ("memdoctor", "diagnose")
    case = dict(asked(command.make_context(name, arguments).params).case)
    for option in ("details", "checklist", "claims"):  # of the view
        case.pop(option)
    assert (case.pop("gpu"), case.pop("backend"), case.pop("offline")) == ("T4", "auto", False)
    assert Workload(**{key: value for key, value in case.items() if value is not None}) == workload


def test_every_field_is_drawn() -> None:
    assert set(FIELDS) == set(Workload.__dataclass_fields__)
