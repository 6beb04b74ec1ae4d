"""The group of commands, and the one place where errors become messages and exit codes."""

from __future__ import annotations

import difflib
import importlib
import io
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

import rich_click as click

from memdoctor import __version__
from memdoctor.errors import InputError, MemdoctorError

EXIT_BUG = 1
EXIT_INTERRUPTED = 130

COMMANDS = {
    "diagnose": "Why does (or did) this run not fit, and what makes it fit?",
    "probe": "One step of one workload; writes the examination.",
    "fit": "The largest batch per length and setting, and the smallest card.",
    "compare": "What one saved file holds more than another.",
    "report": "Render a saved file again.",
    "explain": "What a rule (MD201) looks for, why, and what helps.",
    "models": "The checkpoints that the catalogue knows.",
    "gpus": "The GPUs that the catalogue knows.",
    "env": "The environment, for a bug report.",
    "schema": "JSON Schema of the report.",
}
RECORD = "record"  # no command: a program of its own, which needs less installed
LATER_COMMANDS = {"check", "run"}
LATER_OPTIONS = {
    "--args", "--deepspeed", "--accelerate-config", "--open", "--fail-on", "--message", "--log",
    "--snapshot",
}  # fmt: skip


class Commands(click.RichGroup):
    """Loads a command's module when it is called: help and completion need none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order of the README."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command called ``name``."""
        if name not in COMMANDS:
            return None
        command = importlib.import_module(f"memdoctor.cli.{name}").command
        assert isinstance(command, click.Command)
        command.short_help = COMMANDS[name]
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Find the command, or say what was probably meant."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            raise click.UsageError(f"{error.message.rstrip('.')}.{_suggestion(args[0])}", ctx) from error


def _suggestion(word: str) -> str:
    if word in LATER_COMMANDS:
        return f" memdoctor {word} comes in a later version."
    if word.endswith(".py"):
        return f" memdoctor run {word} comes in a later version."
    if Path(word).exists() and word.endswith((".json", ".gz")):
        return f" Did you mean memdoctor report {word}?"
    near = difflib.get_close_matches(word, (*COMMANDS, RECORD), n=1)
    if near == [RECORD]:
        return " To record training steps: python -m memdoctor.probes.record --out DIR."
    return f" Did you mean {near[0]}?" if near else f" The commands are {', '.join(COMMANDS)}."


def _dashes(name: str) -> str:
    """Options and their choices may be written with underscores, as in TrainingArguments."""
    return name.replace("_", "-")


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "token_normalize_func": _dashes},
    epilog="Start with: memdoctor diagnose --model bert-base-uncased",
)
@click.version_option(__version__, prog_name="memdoctor")
def memdoctor() -> None:
    """Find out why BERT fine-tuning runs out of GPU memory, byte by byte, with or without a GPU."""


def main() -> NoReturn:
    """Run the command line; ends the process with one of the exit codes of the documentation."""
    signal.signal(signal.SIGTERM, _terminate)
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115, PTH123 - started with it closed
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115, PTH123
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a name that the terminal cannot show is no reason to fail
    stdout = sys.stdout  # where its reader is gone, click puts another in its place and ends with 1
    try:
        code = memdoctor.main(standalone_mode=False)
    except click.NoSuchOption as error:
        if _dashes(error.option_name) in LATER_OPTIONS:
            click.echo(f"Error: {error.option_name} comes in a later version of memdoctor.", err=True)
        else:
            error.show()
        code = error.exit_code
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except MemdoctorError as error:
        click.echo(f"Error: {error}", err=True)
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("Interrupted.", err=True)
        code = EXIT_INTERRUPTED
    except SystemExit as end:  # a signal's; or click's, when the reader of a pipe has seen enough
        code = end.code if sys.stdout is stdout else 0
    except OSError as error:  # standard output on a full disk, no more processes: nothing that we could mend
        click.echo(f"Error: the system refused: {error}", err=True)
        code = InputError.exit_code
    except Exception as error:  # noqa: BLE001 - the one place where a bug becomes an exit code
        code = _bug(error)
    sys.exit(code if isinstance(code, int) else 0)


def _terminate(number: int, frame: object) -> NoReturn:
    """A request to end unwinds like any exit, so that workers are ended and no file is left half written."""
    sys.exit(128 + number)


def _bug(error: Exception) -> int:
    import traceback

    if {"-v", "--verbose"} & set(sys.argv):
        traceback.print_exc()
    else:
        click.echo(f"Internal error: {_last_line(error)}", err=True)
        click.echo("  This is a bug of memdoctor. Run it again with -v for the traceback, and report that.", err=True)
    return EXIT_BUG


def _last_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"
