"""The registry of domains. A third-party domain is a `Domain` behind an entry point of group ``populora.domains``:

    [project.entry-points."populora.domains"]
    calculator = "calculator_domain:DOMAIN"

Entry points are loaded when a name that is not built in is asked for, never at import.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from populora.core.config import Config
from populora.core.errors import ConfigError, did_you_mean
from populora.core.types import TaskType
from populora.domains import python, sql
from populora.domains.declaration import Domain
from populora.sandbox.protocol import Limits
from populora.sandbox.runner import PYTHON, Runner

GROUP = "populora.domains"
BUILT_IN = {domain.name: domain for domain in (python.DOMAIN, sql.DOMAIN)}


@cache
def load_domain(name: str) -> Domain:
    """Return the domain of that name. Raises `ConfigError` if there is none, or if its package is broken."""
    packages = packages_of(name)
    if len(packages) > 1:
        raise ConfigError(f"the domain '{name}' is in several packages: {', '.join(packages)}. Uninstall all but one.")
    if name in BUILT_IN:
        return BUILT_IN[name]
    if not packages:
        known = domain_names()
        raise ConfigError(f"there is no domain '{name}'.{did_you_mean(name, known)} Installed: {', '.join(known)}.")
    return _load(*_entries(name))


def load_domains(names: Iterable[str]) -> dict[str, Domain]:
    """Load the domains of a run. Raises `ConfigError` as `load_domain`, and if two of them would fill one column of the records."""
    domains = {name: load_domain(name) for name in names}
    owners: dict[str, str] = {}
    for name, metric in ((name, metric) for name, domain in domains.items() for metric in domain.metric_names):
        if owners.setdefault(metric, name) != name:
            raise ConfigError(
                f"the domains '{owners[metric]}' and '{name}' both have a metric '{metric}': train them in two runs, or rename it"
            )
    return domains


def domain_of(task: TaskType) -> Domain:
    """Return the domain of a task type."""
    return load_domain(task.domain)


def domain_names() -> list[str]:
    """List the names of all domains, built-in ones first."""
    return [*BUILT_IN, *sorted({entry.name for entry in entry_points(group=GROUP)} - set(BUILT_IN))]


def packages_of(name: str) -> list[str]:
    """List the distributions that have a domain of this name, such as ``populora-calculator 0.1.0``. More than one is an error."""
    return [*(["populora"] if name in BUILT_IN else []), *map(_package, _entries(name))]


def runners_of(domains: Iterable[str]) -> tuple[Runner, ...]:
    """Return the runners that a sandbox needs for these domains beside its own, that of Python."""
    return tuple(runner_of(load_domain(name)) for name in domains if name != PYTHON)


def runner_of(domain: Domain) -> Runner:
    """Return the runner of a domain with its control program, and with the package that errors name."""
    program, example = domain.identity
    return replace(domain.runner, control=(program, example.inputs), distribution=", ".join(packages_of(domain.name)))


def sandbox_limits(config: Config) -> Limits:
    """Return the sandbox limits of a run, with the runners of its domains."""
    box = config.sandbox
    return Limits(box.cpu_seconds, box.wall_seconds, box.memory_mb, box.max_output_chars, runners=runners_of(config.domains))


def _entries(name: str) -> list[EntryPoint]:
    return [entry for entry in entry_points(group=GROUP) if entry.name == name]


def _load(entry: EntryPoint) -> Domain:
    try:
        domain = entry.load()
    except (Exception, SystemExit) as error:
        raise ConfigError(f"the domain '{entry.name}' of {_package(entry)} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(domain, Domain):
        raise ConfigError(f"the domain '{entry.name}' of {_package(entry)}: '{entry.value}' is no Domain, but {type(domain).__name__}")
    if domain.name != entry.name:
        raise ConfigError(f"the domain '{entry.name}' of {_package(entry)} calls itself '{domain.name}': the names must be equal")
    return domain


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else f"'{entry.value}'"
