"""``memdoctor probe --verify-accumulation``: what is asked for, and what is printed."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import rich_click as click

from memdoctor.cli.options import asked
from memdoctor.cli.output import check_outputs, next_command, print_json, progress, shown_of, typed, write_all
from memdoctor.errors import UsageError
from memdoctor.records import Loop, Verification, VerificationPlan

EXIT_FAILED = 3
_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_OF_A_CARD = ("gpu", "simulated")
_EXAMPLE = "my_training:train"
_TAKES = 4  # arguments of a loop


def verify(given: dict[str, Any], learning_rate: float | None) -> None:
    """Run the verification, print and write it, and end with 3 where a check failed."""
    from memdoctor import doctor
    from memdoctor.cases import VERIFIED_BY_DEFAULT, VERIFIED_SEQ_LENGTH
    from memdoctor.reports.documents import verification_document
    from memdoctor.reports.verification import print_verification

    loop = given["loop"] or Loop.TRAINER.value
    own = _FUNCTION.fullmatch(loop) is not None
    if not own and loop not in tuple(Loop):
        raise UsageError(
            f"--loop {loop} is neither trainer nor custom",
            why="nor does it name a function of your own, which is package.module:function",
            hint=f"--loop {_own_loop(loop)}, a function (model, optimizer, batches, gradient_accumulation_steps)",
        )
    ask = asked({**given, "loop": Loop.CUSTOM.value if own else given["loop"]})
    check_outputs(ask.outputs, Verification, force=ask.force)
    case, assumed = dict(ask.case), []
    if case["backend"] in _OF_A_CARD:
        raise click.UsageError(f"--verify-accumulation runs on the CPU, not with --backend {case['backend']}.")
    if case["backend"] == "auto":
        case["backend"], assumed = "cpu", ["backend cpu, where numbers are real"]
    for name, value in VERIFIED_BY_DEFAULT.items():
        if case[name] is None:
            case[name] = value
            assumed.append(f"{name} {value}")
    plan = VerificationPlan(loop=loop)
    if learning_rate is not None:
        plan = replace(plan, learning_rate=learning_rate)
    else:
        assumed.append(f"learning_rate {plan.learning_rate:g}")
    opened = doctor.open_case(**case, default_seq_length=VERIFIED_SEQ_LENGTH)
    with progress(quiet=ask.quiet) as tell:
        found = doctor.verify(doctor.with_assumed(opened, assumed), plan, time_limit=ask.time_limit)
        if tell is not None:
            tell(1, 0, 1, f"{len(found.checks)} checks")
    document = verification_document(found := shown_of(found, redact=ask.redact))
    if ask.as_json:
        print_json(document)
    else:
        print_verification(found)
    write_all(ask.outputs, found, document, force=ask.force)
    if not (ask.as_json or ask.quiet or ask.redact):
        again = typed("--json", "-q", "--quiet")
        next_command(
            f"memdoctor report {ask.outputs[0]}" if ask.outputs else f"memdoctor probe {again} -o verification.json"
        )
    if not found.passed:
        raise SystemExit(EXIT_FAILED)


def _own_loop(said: str) -> str:
    """The loop that ``said`` may be about, by name: one of the file, or of the module here. Nothing of it is run."""
    file = Path(said if said.endswith(".py") else f"{said.partition(':')[0].replace('.', '/')}.py")
    module = ".".join(file.with_suffix("").parts)
    try:
        parsed = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):  # ValueError: it is no text
        return _EXAMPLE
    takes = [one.name for one in parsed.body if isinstance(one, ast.FunctionDef) and len(one.args.args) == _TAKES]
    name = f"{module}:{takes[0] if takes else 'train'}"
    return name if _FUNCTION.fullmatch(name) else _EXAMPLE
