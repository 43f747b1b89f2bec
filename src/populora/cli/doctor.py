"""``populora doctor``: check the machine, sandbox, tiny base, what computes, and domains. Its output belongs into a bug report."""

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import distributions

from rich.table import Table
from rich.text import Text

from populora.cli.arguments import parse
from populora.core.errors import PopuloraError
from populora.core.installed import versions
from populora.core.invocation import DISTRIBUTION
from populora.core.output import OutputConsole


@dataclass(frozen=True)
class Doctor:
    """Check this machine: versions, cores, sandbox, tiny base, what computes, domains. Exits with 1 if a check fails."""


def main(arguments: Sequence[str]) -> int:
    """Print one line per check; returns 0, or 1 if one failed."""
    from populora.domains.registry import domain_names

    parse(Doctor, arguments, "doctor")
    console = OutputConsole()
    table, code = Table.grid(padding=(0, 2)), 0
    for name, check in (
        ("versions", _versions),
        ("machine", _machine),
        ("sandbox", _sandbox),
        ("tiny base", _tiny_base),
        ("computation", _computation),
        *((f"domain {name}", partial(_domain, name)) for name in domain_names()),
    ):
        try:
            table.add_row(Text("ok", "green"), name, Text(check()))
        except (PopuloraError, ImportError) as error:
            code = 1
            table.add_row(Text("fail", "bold red"), name, Text(str(error)))
    console.print(table)
    return code


def version(_arguments: Sequence[str]) -> int:
    """Print the version, for ``populora --version``."""
    OutputConsole().print(versions()["populora"])
    return 0


def _versions() -> str:
    if other := next(iter(distributions(name="populora")), None):
        raise PopuloraError(
            f"a package that pip knows as populora {other.version} is installed, too: another project's, or this one's under its old name. "
            f"Run `pip uninstall populora {DISTRIBUTION}`, then install this one again"
        )
    return ", ".join(f"{name} {number}" for name, number in versions().items())


def _machine() -> str:
    import torch

    cuda = f"{torch.cuda.device_count()} x {torch.cuda.get_device_name(0)}" if torch.cuda.is_available() else "no GPU (not needed)"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()  # Linux alone tells which are ours
    return f"{platform.system()} {platform.release()}, {cores} cores, {torch.get_num_threads()} torch threads, {cuda}"


def _sandbox() -> str:
    from populora.sandbox.layers import isolation

    sandbox = isolation()
    return "\n".join([f"tier {sandbox.tier}", *(f"  {layer}: {detail}" for layer, detail in sorted(sandbox.report.items()))])


def _tiny_base() -> str:
    from populora.core.config import BaseConfig
    from populora.engine.model.loading import base_folder, load_base

    model, tokenizer = load_base(BaseConfig())
    size = sum(parameter.numel() for parameter in model.parameters())
    described = f"{size / 1e6:.1f} M parameters, {len(tokenizer)} tokens, context {model.config.max_position_embeddings}"
    return f"{described}; in {base_folder(BaseConfig())}"


def _domain(name: str) -> str:
    """Name the version, facts and package of a domain, after its runner and its prompts were tried."""
    from populora.domains.conformance import check
    from populora.domains.registry import load_domain, packages_of

    check(load_domain(name))
    return f"version {load_domain(name).fingerprint().partition(' ')[2]}, in {', '.join(packages_of(name))}"


def _computation() -> str:
    """Say what computes a base in float32 on this machine's CPU."""
    from populora.core.config import BaseConfig, LoraConfig
    from populora.core.installed import processor
    from populora.engine.model.adapted_model import AdaptedModel
    from populora.engine.model.loading import load_base
    from populora.engine.sampling.decoder_pool import DecoderPool

    adapted = AdaptedModel(load_base(BaseConfig())[0], LoraConfig().targets, 1, 1, 1.0)
    computation = {"decoding": DecoderPool(adapted, 1).description, **adapted.computation}
    return "\n".join([*(f"{work} on the CPU by {what}" for work, what in computation.items()), processor()])
