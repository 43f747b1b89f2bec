"""The check of a domain: its prompts, and its runner in the sandbox. `populora doctor` does it for every domain, an author in a test."""

from functools import partial

from populora.core.errors import ConfigError, SandboxUnavailableError
from populora.core.types import VerdictKind
from populora.domains.declaration import Domain
from populora.domains.prompt_files import prompt_sets, read_prompts
from populora.domains.registry import packages_of, runner_of
from populora.sandbox.pool import SandboxPool
from populora.sandbox.protocol import REASONS, Job, Limits, Value
from populora.sandbox.runner import PYTHON

REFUSALS = REASONS - {"undeclared_reason", "signal", "exit_without_result", "memory"}
ODD_TEXTS = ("", " \n ", "(", "'", "\x00", "é", "x", "1", "1, 2", "-" * 300, "[" * 300, "9" * 5000)


def check(domain: Domain) -> None:
    """Raise `ConfigError` with the first fault of a domain, `SandboxUnavailableError` if its runner does not start.

    Prompts show what they must. The identity program has the stated output, in several processes. Texts are read and written back as they
    are. Odd texts are refused for reasons that the runner declares.
    """
    try:
        if not prompt_sets(domain):
            missing = f"expected prompts/azr.toml or prompts/compact.toml in '{domain.package}', there is neither"
            raise ConfigError(f"{missing}: are they in the installed package (`package-data`)?")
        for name in prompt_sets(domain):
            read_prompts(domain, name)
        domain.fingerprint()  # its facts are there
        runners = () if domain.name == PYTHON else (runner_of(domain),)
        with SandboxPool(Limits(runners=runners), 1, allow_weak=True) as pool:
            _check_identity(domain, pool)
            _check_odd_texts(domain, pool)
    except SandboxUnavailableError:
        raise
    except Exception as error:
        label = f"the domain '{domain.name}' of {', '.join(packages_of(domain.name)) or domain.package}"
        raise ConfigError(f"{label}: {error if isinstance(error, ConfigError) else repr(error)}") from error


def _check_identity(domain: Domain, pool: SandboxPool) -> None:
    (program, example), job = domain.identity, partial(Job, domain=domain.name)
    output = _value(pool, job("run", program, (example.inputs,)), example.output)
    if output.comparable not in _value(pool, job("parse", texts=(example.output,)), example.output).comparables:
        raise ConfigError(f"the identity program's output is another value than that of the text {example.output!r}")
    _value(pool, job("parse", texts=(example.inputs,), as_inputs=True), example.inputs)
    (measured,) = pool.run([job("measure", program)])
    if not measured.ok:
        raise ConfigError(f"measure of {program!r}: expected four integers and a text, got {measured.kind} {measured.reason}")


def _value(pool: SandboxPool, job: Job, text: str) -> Value:
    (verdict,) = pool.run([job], twice=True)
    if not verdict.ok or verdict.values[0].literal != text:
        outcome = repr(verdict.values[0].literal) if verdict.ok else f"{verdict.kind} {verdict.reason}"
        raise ConfigError(f"{job.mode} of {(job.program, *job.texts)}: expected {text!r}, got {outcome}")
    return verdict.values[0]


def _check_odd_texts(domain: Domain, pool: SandboxPool) -> None:
    (program, example), job = domain.identity, partial(Job, domain=domain.name)
    jobs = [job("parse", texts=(text,), as_inputs=as_inputs) for text in ODD_TEXTS for as_inputs in (True, False)]
    jobs += [job("measure", text) for text in ODD_TEXTS]
    runs = [job("run", text, (example.inputs,)) for text in ODD_TEXTS] + [job("run", program, (text,)) for text in ODD_TEXTS]
    for read, verdict in zip([*jobs, *runs], pool.run([*jobs, *runs], twice=True), strict=True):
        refused = verdict.kind is VerdictKind.ERROR and verdict.reason in {*REFUSALS, *domain.runner.reasons}
        if not (verdict.ok or refused or (read.mode == "run" and verdict.reason != "undeclared_reason")):  # a program may fail in any way
            outcome = f"expected a value or a declared reason, got {verdict.kind} {verdict.reason}"
            raise ConfigError(f"{read.mode} of {(read.program, *read.texts)}: {outcome}")
        for value in verdict.values if read.mode == "parse" else ():
            _value(pool, job("parse", texts=(value.literal,), as_inputs=read.as_inputs), value.literal)
