"""``populora launch slurm|kubernetes|ssh [PRESET|FILE.toml]``: write the files that start a run on the machines of a cluster.

The files are short, to be read and changed. They begin the run, or go on with it (``start.sh``), so whatever restarts a job loses the steps
since the last checkpoint at most. On Slurm and by ssh, ``ray symmetric-run`` starts Ray on all machines; on Kubernetes KubeRay does.
"""

import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, ClassVar

import jinja2
import tyro

from populora.cli.arguments import QUIET, parse_settings
from populora.core.config import EMBEDDED, Config
from populora.core.config_check import check
from populora.core.config_file import to_toml
from populora.core.errors import ConfigError, did_you_mean
from populora.core.files import write_folder
from populora.core.invocation import pasteable
from populora.core.presets import DEFAULT, settings_file
from populora.domains.registry import load_domains
from populora.engine.cluster.placement import check_room, place_actors
from populora.engine.planning.hardware import count_idle_gpus, fill_gpus

LONGEST_NAME = 47
"""Characters of a RayJob's name, which begins with a letter. KubeRay refuses others."""
RAY = "2.60.0"  # the version that pyproject.toml allows
HELP = """Write the files that start a run on the machines of a cluster. Nothing is started.

`populora launch slurm --help`       a batch script for Slurm
`populora launch kubernetes --help`  a manifest for KubeRay
`populora launch ssh --help`         a script for machines that you reach by ssh
"""


@dataclass(frozen=True)
class Launch:
    """What all schedulers need to know."""

    config: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="[PRESET|FILE.toml]")] = DEFAULT
    """A preset that ships (`populora train --list`), or a settings file of yours."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="DIR"), QUIET] = None
    """The folder to write, which must not exist yet; by default in `launch/`, named after the settings and the scheduler."""
    nodes: Annotated[int, tyro.conf.arg(metavar="N")] = 1
    """Number of machines, all alike."""
    gpus: Annotated[int, tyro.conf.arg(metavar="N")] = 8
    """GPUs of a machine; 0 for a run on processors."""
    cpus: Annotated[int, tyro.conf.arg(metavar="N"), QUIET] = 0
    """Processor cores of a machine; by default 8 for each GPU, and 8 without."""
    settings: Annotated[Config, tyro.conf.arg(name="")] = field(default_factory=Config)

    @property
    def cores(self) -> int:
        """Processor cores of a machine."""
        return self.cpus or 8 * max(self.gpus, 1)


@dataclass(frozen=True)
class Slurm(Launch):
    """Write a batch script for Slurm. Nothing is started."""

    hours: Annotated[int, tyro.conf.arg(metavar="N")] = 24
    """The time limit of a job. A run that is not over by then goes on when the job is submitted again."""

    template: ClassVar[str] = "run.sbatch"
    use: ClassVar[str] = "sbatch run.sbatch"


@dataclass(frozen=True)
class Ssh(Launch):
    """Write a script that starts a run on machines that you reach by ssh. Nothing is started."""

    hosts: Annotated[tuple[str, ...], tyro.conf.arg(metavar="HOST …")] = ()
    """Names or addresses of the machines. The run's loop is on the first."""

    template: ClassVar[str] = "run.sh"
    use: ClassVar[str] = "bash run.sh"


@dataclass(frozen=True)
class Kubernetes(Launch):
    """Write a manifest for KubeRay. Nothing is started."""

    image: Annotated[str, tyro.conf.arg(metavar="IMAGE")] = ""
    """A container image with populora, vLLM, `ray[default]` and wget, such as one that you built from the Dockerfile."""
    claim: Annotated[str, tyro.conf.arg(metavar="NAME")] = "populora"
    """The persistent volume claim that holds runs and base models."""
    memory: Annotated[int, tyro.conf.arg(metavar="GIB"), QUIET] = 0
    """Memory of a machine; by default 128 GiB for each GPU, and 32 without."""

    template: ClassVar[str] = "rayjob.yaml"
    use: ClassVar[str] = "kubectl apply -f rayjob.yaml"

    @property
    def gib(self) -> int:
        """Memory of a machine."""
        return self.memory or 128 * self.gpus or 32


SCHEDULERS: dict[str, type[Slurm] | type[Kubernetes] | type[Ssh]] = {"slurm": Slurm, "kubernetes": Kubernetes, "ssh": Ssh}


def main(arguments: Sequence[str]) -> int:
    """Write the files and say how to use them; returns 0. Raises `PopuloraError`."""
    name = arguments[0] if arguments else ""
    if name in ("-h", "--help"):
        sys.stdout.write(pasteable(HELP))
        return 0
    if name not in SCHEDULERS:
        raise ConfigError(
            f"expected slurm, kubernetes or ssh after `populora launch`, then a preset or a settings file.{did_you_mean(name, SCHEDULERS)} "
            "`populora launch slurm --help` lists the options."
        )
    args = parse_settings(SCHEDULERS[name], arguments[1:], f"launch {name}")
    stem = settings_file(args.config).stem
    folder = args.out or Path("launch", f"{stem}-{name}")
    files = launch_files(args, cluster_config(args), folder.name)
    if folder.exists():
        raise ConfigError(f"'{folder}' exists already: choose another folder (`-o DIR`)")
    write_folder(folder, {file: text.encode() for file, text in files.items()})
    sys.stdout.write(f"written to {folder}: {', '.join(files)}. Read them, then start the run in that folder: {args.use}\n")
    return 0


def cluster_config(args: Slurm | Kubernetes | Ssh) -> Config:
    """Return the settings of the run on these machines. Raises `ConfigError` where they do not fit each other."""
    if args.nodes < 1 or args.gpus < 0 or args.cpus < 0:
        raise ConfigError(f"expected at least one machine, got --nodes {args.nodes} --gpus {args.gpus} --cpus {args.cpus}")
    if isinstance(args, Ssh) and len(set(args.hosts)) != args.nodes:
        raise ConfigError(f"expected --hosts with the names of --nodes {args.nodes} machines, got {' '.join(args.hosts) or 'none'}")
    if isinstance(args, Ssh) and "@" in args.hosts[0]:
        raise ConfigError(
            f"--hosts begins with {args.hosts[0]}: expected a name or an address, because Ray meets there; put the user into ~/.ssh/config"
        )
    if isinstance(args, Kubernetes) and not args.image:
        raise ConfigError("expected --image, the name of a container image with populora, vLLM and Ray")
    if isinstance(args, Kubernetes) and args.memory < 0:
        raise ConfigError(f"--memory is {args.memory}: expected 0 or more GiB")
    if isinstance(args, Slurm) and args.hours < 1:
        raise ConfigError(f"--hours is {args.hours}: expected 1 or more")
    check(args.settings)
    load_domains(args.settings.domains)
    config = fill_gpus(args.settings, args.gpus, args.nodes)
    if not config.cluster.learners:
        raise ConfigError("a run without cluster.learners is one process and needs no cluster: start it with `populora train`")
    config = replace(config, cluster=replace(config.cluster, address="auto"), base=replace(config.base, path=_base_path(args, config)))
    check(config)
    on_gpus = config.base.device != "cpu"
    if on_gpus != bool(args.gpus):
        raise ConfigError(f'base.device is "{config.base.device}": expected {"GPUs" if on_gpus else "--gpus 0"}, got --gpus {args.gpus}')
    if on_gpus and (idle := count_idle_gpus(config, args.gpus, args.nodes)):
        raise ConfigError(f"{idle} of {args.gpus * args.nodes} GPUs would be idle: set cluster.engines and cluster.learners, or give fewer")
    check_room(place_actors(config), [{"CPU": args.cores, "GPU": args.gpus}] * args.nodes)
    return config


def _base_path(args: Slurm | Kubernetes | Ssh, config: Config) -> str:
    """Return the base's path as the machines find it: they start in another folder. Raises `ConfigError` for a folder that a pod lacks."""
    path = config.base.path
    if path in EMBEDDED or Path(path).is_absolute() or not Path(path).is_dir():
        return path
    if isinstance(args, Kubernetes):
        raise ConfigError(
            f"base.path is '{path}', a folder of this machine: expected its path on the volume, such as /data/{Path(path).name}"
        )
    return str(Path(path).absolute())


def launch_files(args: Slurm | Kubernetes | Ssh, config: Config, title: str) -> dict[str, str]:
    """Return the text of each file by its name. Jobs are called after ``title``, that of the folder."""
    loader = jinja2.PackageLoader("populora.cli")
    options = {"trim_blocks": True, "lstrip_blocks": True, "keep_trailing_newline": True, "undefined": jinja2.StrictUndefined}
    templates = jinja2.Environment(loader=loader, autoescape=False, **options)  # noqa: S701  shell and YAML, not HTML
    templates.filters["quote"] = shlex.quote
    name = re.sub("[^a-z0-9]+", "-", title.lower()).strip("-")
    name = (name if name[:1].isalpha() else f"populora-{name}")[:LONGEST_NAME].strip("-")
    start, settings = templates.get_template("start.sh").render(), to_toml(config)
    main_file = templates.get_template(args.template).render(launch=args, name=name, start=start, settings=settings, ray=RAY)
    return (
        {args.template: main_file}
        if isinstance(args, Kubernetes)
        else {args.template: main_file, "start.sh": start, "settings.toml": settings}
    )
