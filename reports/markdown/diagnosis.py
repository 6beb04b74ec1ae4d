"""A diagnosis as Markdown: the verdict first, then where the memory is, what to do, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from memdoctor.analysis import alike
from memdoctor.levers.wording import in_words
from memdoctor.records import Diagnosis, Plan, TensorGroup
from memdoctor.reports.advice import costs_in_words
from memdoctor.reports.checklist import cause_in_a_line
from memdoctor.reports.markdown.blocks import bar, details, document, items, table
from memdoctor.reports.markdown.environment import environment
from memdoctor.reports.markdown.text import code, fence, text
from memdoctor.reports.wording import setting_of
from memdoctor.units import format_bytes

_LANGUAGES = {"trainer": "python", "model": "python", "data": "python", "torch": "python", "deepspeed": "json"}
_TITLES = {
    "trainer": "TrainingArguments", "model": "the model", "data": "the data", "torch": "a loop of your own",
    "deepspeed": "DeepSpeed", "environment": "the environment", "cli": "memdoctor",
}  # fmt: skip


def diagnosis_markdown(diagnosis: Diagnosis) -> bytes:
    """The whole document."""
    return document(_blocks(diagnosis))


def _blocks(diagnosis: Diagnosis) -> Iterator[str]:
    headline, _, why = diagnosis.verdict.sentence.partition(": ")
    yield f"### {text(headline)}"
    yield f"{text(setting_of(diagnosis))}."
    if why:
        yield f"**Why:** {text(why)}"
    if cause := cause_in_a_line(diagnosis):
        yield f"**Cause:** {text(cause)}"
    if diagnosis.ran_out is not None and diagnosis.ran_out.message:
        yield details("What PyTorch says", fence(diagnosis.ran_out.message))
    yield _parts(diagnosis)
    yield from plan_blocks(diagnosis.plan, diagnosis.provenance.mode)
    yield _nothing_fits(diagnosis)
    yield _toggles(diagnosis)
    yield _findings(diagnosis)
    yield _checklist(diagnosis)
    yield _phases(diagnosis)
    yield _modules(diagnosis)
    yield details("The largest tensors at the peak", tensors_table(diagnosis.tensors))
    yield environment(diagnosis.workload, diagnosis.device, diagnosis.provenance, diagnosis.assumed)


def _parts(diagnosis: Diagnosis) -> str:
    parts, peak = list(diagnosis.breakdown.items()), diagnosis.peak
    largest = max(abs(size) for _, size in parts)
    rows = [
        (name.replace("_", " "), format_bytes(size), bar(size, largest)) for name, size in parts if size
    ]  # fmt: skip
    rows.append(("**the card**", f"**{format_bytes(diagnosis.device.total_bytes)}**", ""))
    peaks = (
        f"At the peak, in {text(peak.phase)} of step {peak.step}: {format_bytes(peak.allocated_bytes)} allocated, "
        f"{format_bytes(peak.reserved_bytes)} reserved, {format_bytes(peak.device_bytes)} on the device; "
        f"{text(diagnosis.provenance.mode)}."
    )
    return f"{peaks}\n\n{table(('part', 'size', ''), rows, figures='lrl')}"


def plan_blocks(plan: tuple[Plan, ...], mode: str) -> Iterator[str]:
    """What to do: a table of what was probed, and for each entry the lines to copy."""
    if not plan:
        return
    yield "#### What to do"
    rows = [
        (
            str(number), text(in_words(entry.change), 300), format_bytes(entry.peak.reserved_bytes),
            format_bytes(entry.saves_bytes), text(costs_in_words(entry, mode)),
        )
        for number, entry in enumerate(plan, start=1)
    ]  # fmt: skip
    yield table(("", "change, probed", "reserved peak", "saves", "costs"), rows, figures="rlrrl")
    for number, entry in enumerate(plan, start=1):
        patches = (
            f"For {_TITLES.get(language, text(language))}:\n\n{fence(lines, _LANGUAGES.get(language, 'bash'))}"
            for language, lines in entry.patch.items()
        )
        yield details(f"{number}: {in_words(entry.change)}: lines to copy", *patches)


def _nothing_fits(diagnosis: Diagnosis) -> str:
    smallest = diagnosis.smallest
    if smallest is None or diagnosis.plan:
        return ""
    cards = [
        f"{what} {text(card.gpu)} ({format_bytes(card.total_bytes)})"
        for card, what in ((smallest.card, "it fits"), (smallest.card_as_is, "unchanged, the target fits"))
        if card is not None
    ]
    least = f"{format_bytes(smallest.peak.reserved_bytes)} reserved ({text(in_words(smallest.change), 300)})"
    return "; ".join([f"**Nothing that was probed fits.** The smallest footprint is {least}", *cards])


def _toggles(diagnosis: Diagnosis) -> str:
    toggles = sorted(diagnosis.toggles, key=lambda toggle: -toggle.saves_bytes)
    most = max((abs(toggle.saves_bytes) for toggle in toggles), default=0)
    rows = [
        (
            text(in_words(toggle.change), 300), format_bytes(toggle.peak.reserved_bytes),
            format_bytes(toggle.saves_bytes), bar(toggle.saves_bytes, most) if toggle.saves_bytes > 0 else "",
            f"{'yes' if toggle.fits else 'no'}, {text(toggle.mode)}",
        )
        for toggle in toggles
    ]  # fmt: skip
    return details(
        "What if", table(("change", "reserved peak", "saves", "", "fits"), rows, figures="lrrl")
    )  # fmt: skip


def _findings(diagnosis: Diagnosis) -> str:
    found = [
        "\n".join((
            f"- **{text(one.id)}** ({text(one.severity)}) {text(one.title)}: {text(one.detail)}",
            *(f"  - {text(remedy)}" for remedy in one.remedies),
        ))
        for one in diagnosis.findings
    ]  # fmt: skip
    missing = len(diagnosis.not_checked)
    checked = f"{len(diagnosis.checks_passed)} rules found nothing; {missing} could not be checked." if found else ""
    return details(f"Findings ({len(found)})", "\n".join(found), checked) if found else ""


def _checklist(diagnosis: Diagnosis) -> str:
    steps = [
        f"{'**' if step.cause else ''}{text(step.id)} {text(step.question)}{'**' if step.cause else ''} "
        f"{'' if step.made else 'Not made. '}{text(step.showed)}"
        for step in diagnosis.checklist
    ]
    return details("The checklist, as it was followed", items(steps) if steps else "")


def _phases(diagnosis: Diagnosis) -> str:
    most = max((phase.peak_allocated_bytes for phase in diagnosis.phases), default=0)
    rows = [
        (
            str(phase.step), text(phase.name), format_bytes(phase.peak_allocated_bytes),
            format_bytes(phase.end_allocated_bytes), bar(phase.peak_allocated_bytes, most),
        )
        for phase in diagnosis.phases
    ]  # fmt: skip
    return details("Phases", table(("step", "phase", "peak", "at its end", ""), rows, figures="rlrrl"))


def _modules(diagnosis: Diagnosis) -> str:
    held: Counter[str] = Counter()
    for module in diagnosis.modules:
        held[alike(module.path)] += module.total
    most = max(held.values(), default=0)
    rows = [(code(path) or "(no module)", format_bytes(size), bar(size, most)) for path, size in held.most_common()]
    return details("Modules at the peak, layers together", table(("module", "bytes", ""), rows, figures="lrl"))


def tensors_table(tensors: tuple[TensorGroup, ...]) -> str:
    """Groups of tensors that are alike."""
    rows = [
        (
            format_bytes(group.bytes), f"{group.count} x {'x'.join(map(str, group.shape)) or 'scalar'}",
            code(group.dtype), group.category.value.replace("_", " "), code(group.module), code(group.op),
        )
        for group in tensors
    ]  # fmt: skip
    return table(("bytes", "count x shape", "type", "category", "module", "operator"), rows, figures="r")
