"""The command `populora`: one module per subcommand in `populora.cli`, imported only when it is asked for.

Every error that populora raises on purpose is printed as one message on stderr with exit code 2; Ctrl-C ends with 130, and a
closed pipe with 141, as in other commands.
"""

import io
import os
import select
import signal
import sys
from collections.abc import Sequence
from importlib import import_module

from populora.core.errors import ConfigError, PopuloraError, did_you_mean
from populora.core.invocation import pasteable

COMMANDS = {
    "train": "co-evolve a population: `populora train`, or with a preset: `populora train tiny_4t4s`",
    "init": "write a preset as a file of your own: `populora init tiny_4t4s`",
    "plan": "memory and time of a run before it starts: `populora plan paper_4t4s`",
    "launch": "write the files that start a run on Slurm, Kubernetes or by ssh: `populora launch slurm paper_8t8s --nodes 2`",
    "resume": "continue a stopped run: `populora resume`, by default the newest under runs/",
    "show": "read the problems, answers, verdicts and rewards of a step: `populora show --step 12`",
    "report": "every figure of the paper, and an explorer, in one HTML file: `populora report`",
    "compare": "what arms of runs differ in, with intervals over seeds: `populora compare runs/tiny*`",
    "watch": "the same page for a run that is going on, served on this machine alone: `populora watch`",
    "export": "take one member out of a run as a PEFT folder",
    "breed": "make a child of PEFT adapters: `populora breed A B --operator x1 -o child`",
    "replay": "breed a child again, of a folder or of a run, and compare it bit by bit",
    "verify": "judge programs and answers in the sandbox: JSON Lines in, JSON Lines out",
    "retention": "measure which operators' children learn on: `populora retention`",
    "evaluate": "judge members on benchmarks: `populora evaluate runs/tiny --suite tiny`",
    "doctor": "check this machine: versions, sandbox, base model",
}
"""Name and help of each subcommand; its module in `populora.cli` has ``main(arguments) -> exit code``."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    # Before torch is loaded: its threads then sleep instead of spinning, and leave the cores to the sandbox.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    if isinstance(sys.stdout, io.TextIOWrapper):  # which may not hold every letter of a model's text, or of a path
        sys.stdout.reconfigure(errors="backslashreplace")
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        print(pasteable(usage()))
        return 0 if words else 2
    try:
        return _command(words[0])(words[1:])
    except PopuloraError as error:
        print(pasteable(f"populora: error: {error}"), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("populora: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        if not _reader_is_gone():
            raise
        from populora.core.output import discard_output

        discard_output()
        return 128 + signal.SIGPIPE


def _reader_is_gone() -> bool:
    """Tell whether standard output is a pipe that nobody reads any more, as after `populora train --help | head`."""
    poll = select.poll()
    poll.register(sys.stdout, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def usage() -> str:
    """Return the text of ``populora --help``."""
    listed = "\n".join(f"  {name:<9} {help_text}" for name, help_text in COMMANDS.items())
    return (
        "usage: populora COMMAND …\n\nCo-evolving populations of LoRA adapters for reasoning self-play.\n\n"
        f"{listed}\n\n`populora COMMAND --help` explains a command."
    )


def _command(name: str):
    if name == "--version":
        return import_module("populora.cli.doctor").version
    if name not in COMMANDS:
        raise ConfigError(f"unknown command '{name}': expected one of {', '.join(COMMANDS)}.{did_you_mean(name, COMMANDS)}")
    return import_module(f"populora.cli.{name}").main


if __name__ == "__main__":
    sys.exit(main())
