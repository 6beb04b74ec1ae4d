"""Python that makes the model: ``from_pretrained``, peft's adapters, frozen parameters."""

from __future__ import annotations

from collections.abc import Iterator

from memdoctor.patches.edit import Edit, is_factory, literal, snippet
from memdoctor.records import Dtype, Task, Workload

AUTO_CLASSES = {
    Task.SEQUENCE_CLASSIFICATION: "AutoModelForSequenceClassification",
    Task.TOKEN_CLASSIFICATION: "AutoModelForTokenClassification",
    Task.QUESTION_ANSWERING: "AutoModelForQuestionAnswering",
    Task.MULTIPLE_CHOICE: "AutoModelForMultipleChoice",
    Task.MASKED_LM: "AutoModelForMaskedLM",
    Task.CAUSAL_LM: "AutoModelForCausalLM",
    Task.SEQ2SEQ_LM: "AutoModelForSeq2SeqLM",
    Task.NEXT_SENTENCE: "AutoModelForNextSentencePrediction",
    Task.BASE: "AutoModel",
}
# peft.TaskType; the head of the last two tasks comes with the checkpoint, and that of multiple choice is new.
PEFT_TASKS = {
    Task.SEQUENCE_CLASSIFICATION: "SEQ_CLS",
    Task.TOKEN_CLASSIFICATION: "TOKEN_CLS",
    Task.QUESTION_ANSWERING: "QUESTION_ANS",
    Task.CAUSAL_LM: "CAUSAL_LM",
    Task.SEQ2SEQ_LM: "SEQ_2_SEQ_LM",
    Task.BASE: "FEATURE_EXTRACTION",
}
_LABELLED = (Task.SEQUENCE_CLASSIFICATION, Task.TOKEN_CLASSIFICATION)
_LORA = {"lora_rank", "lora_dropout", "lora_target_modules"}


def model_lines(edit: Edit) -> str:
    """The statements that say the change; each is whole, so that it can take the place of the user's own."""
    return snippet((*_loading(edit), *_lora(edit), *_freezing(edit)))


def _loading(edit: Edit) -> Iterator[str]:
    said = {"model", "task", "dtype", "attention", "output_hidden_states"} & edit.changed
    if "num_labels" in edit.changed and edit.after.task in _LABELLED:
        said.add("num_labels")
    if is_factory(edit.after.model):
        if "dtype" in said:
            yield "import torch"
            yield f"model = model.to(torch.{edit.after.dtype})"
        return
    if not said:
        return
    name, auto_class = literal(edit.after.model), AUTO_CLASSES[edit.after.task]
    if "dtype" in said or edit.after.dtype is not Dtype.FLOAT32:
        yield "import torch"
    yield f"from transformers import {auto_class}{', AutoTokenizer' if 'model' in said else ''}"
    if "model" in said:
        yield f"tokenizer = AutoTokenizer.from_pretrained({name})"
    yield f"model = {auto_class}.from_pretrained({', '.join((name, *_keywords(edit.after, said)))})"


def _keywords(after: Workload, said: set[str]) -> Iterator[str]:
    """What is changed, and what was set before and would be lost with the statement that is replaced."""
    if after.task in _LABELLED and ("num_labels" in said or after.num_labels != Workload(model="").num_labels):
        yield f"num_labels={after.num_labels}"
    if after.attention is not None:
        yield f"attn_implementation={literal(after.attention)}"
    if "dtype" in said or after.dtype is not Dtype.FLOAT32:
        yield f"dtype=torch.{after.dtype}"
    if "output_hidden_states" in said or after.output_hidden_states:
        yield f"output_hidden_states={after.output_hidden_states}"


def _lora(edit: Edit) -> Iterator[str]:
    after = edit.after
    if not _LORA & edit.changed:
        return
    if not after.lora_rank:
        if edit.before.lora_rank:
            yield "# no LoRA: train the model that from_pretrained returns, without get_peft_model"
        return
    settings = [f"r={after.lora_rank}"]
    if task := PEFT_TASKS.get(after.task):
        settings.insert(0, f"task_type={literal(task)}")
    if after.lora_dropout or "lora_dropout" in edit.changed:
        settings.append(f"lora_dropout={after.lora_dropout}")
    if after.lora_target_modules:
        every = after.lora_target_modules == ("all-linear",)
        settings.append(f"target_modules={literal('all-linear' if every else after.lora_target_modules)}")
    if after.task is Task.MULTIPLE_CHOICE:
        settings.append('modules_to_save=["classifier"]')
    yield "from peft import LoraConfig, get_peft_model"
    yield f"model = get_peft_model(model, LoraConfig({', '.join(settings)}))"


def _freezing(edit: Edit) -> Iterator[str]:
    if "freeze" not in edit.changed:
        return
    if not edit.after.freeze:
        yield "model.requires_grad_(True)  # in place of what froze a part of it"
        return
    yield "from fnmatch import fnmatch"
    yield "for name, parameter in model.named_parameters():"
    yield f"    parameter.requires_grad &= not any(fnmatch(name, p) for p in {literal(edit.after.freeze)})"
