"""Compile `decode.c` and `attention.c` with this machine's C compiler, once for each processor and version of the sources, and load them.

The library is optional: where it cannot be had `load` returns the reason, and torch computes.
"""

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from populora.core.errors import ConfigError
from populora.core.files import user_cache

FOLDER = Path(__file__).parent
SOURCES = (FOLDER / "attention.c", FOLDER / "decode.c")
FLAGS = ("-O3", "-march=native", "-shared", "-fPIC")
SECONDS = 1800
"""Limit of a compilation, which takes three on an idle machine."""
Pointer, Long = ctypes.c_void_p, ctypes.c_int64


@cache
def load() -> ctypes.CDLL | str:
    """Return the library, or the reason why there is none.

    ``CC`` names another compiler than ``cc``, maybe with arguments, ``CFLAGS`` further flags.
    """
    try:
        name, *arguments = shlex.split(os.environ.get("CC", "")) or ["cc"]
        flags = shlex.split(os.environ.get("CFLAGS", ""))
    except ValueError as error:
        return f"CC or CFLAGS cannot be read: {error}"
    compiler = shutil.which(name)
    if compiler is None:
        return f"there is no C compiler '{name}': install GCC or clang"
    try:
        functions = ctypes.CDLL(str(_compiled((compiler, *arguments, *FLAGS, *flags))))
    except subprocess.TimeoutExpired:
        return f"{compiler} took more than {SECONDS} s: start again when the machine has time"
    except subprocess.SubprocessError as error:
        printed = getattr(error, "stderr", None) or str(error)
        return f"{compiler} failed: {printed.strip().splitlines()[-1]}"
    except (OSError, ConfigError) as error:
        return f"the compiled library cannot be written or loaded: {error}"
    functions.panel.restype = functions.scratch_floats.restype = functions.sample_floats.restype = Long
    functions.description.restype = ctypes.c_char_p
    functions.pack.argtypes = [Long, Long, Pointer, Pointer]
    functions.scratch_floats.argtypes = [Pointer, Long]
    functions.sample_floats.argtypes = [Pointer]
    functions.attention_floats.restype = Long
    functions.attention_floats.argtypes = [Pointer, Long]
    functions.attend_units.argtypes = [Pointer, Long, Long, Long, Long, Pointer]
    functions.decode.argtypes = [Pointer, Pointer, Long, Long, Pointer]
    functions.sample.argtypes = [Pointer, Long, Pointer, Pointer, ctypes.c_float, *[Pointer] * 4]
    return functions


def describe(kernels: ctypes.CDLL | str) -> str:
    """Name what computes: C with its instructions and compiler, or torch with the reason."""
    return f"torch ({kernels})" if isinstance(kernels, str) else f"C ({kernels.description().decode()})"


def _compiled(command: tuple[str, ...]) -> Path:
    """Return the compiled library in the user's cache, named after source, command, compiler and processor."""
    sources = (path.read_bytes() for path in (FOLDER / "vectors.h", *SOURCES))
    compiler = Path(command[0]).stat()  # a newer one has the same path
    named = (*command, f"{compiler.st_size} {compiler.st_mtime_ns}", _processor())
    name = hashlib.sha256(b"\0".join((*sources, *map(str.encode, named)))).hexdigest()[:16]
    folder = user_cache()
    path = folder / f"kernels-{name}.so"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            built = Path(temporary, path.name)
            arguments = [*command, *map(str, SOURCES), "-lm", "-o", str(built)]
            subprocess.run(arguments, check=True, capture_output=True, text=True, timeout=SECONDS)  # noqa: S603 - our own source
            with built.open("rb") as library:
                os.fsync(library)  # or a power cut could leave the name without its content
            built.replace(path)  # another process may compile at the same time
    return path


def _processor() -> str:
    """Return what ``-march=native`` depends on."""
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return f"{platform.machine()} {platform.processor()}"
    lines = {line for line in info.read_text().splitlines() if line.startswith(("vendor", "model", "flags", "Features", "CPU"))}
    return "".join(sorted(lines))
