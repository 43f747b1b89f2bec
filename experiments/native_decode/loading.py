"""Compile and load `decode.c` with the machine's C compiler, once for each machine and version of the source.

The library is optional: without a compiler `load` returns the reason, and torch decodes.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).with_name("decode.c")
FLAGS = ("-O3", "-march=native", "-shared", "-fPIC")
Pointer = ctypes.c_void_p
Long = ctypes.c_int64


@cache
def load() -> ctypes.CDLL | str:
    """Return the library, or the reason why there is none."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        return "no C compiler (cc) on the path"
    try:
        library = ctypes.CDLL(str(_compiled(compiler)))
    except (OSError, subprocess.SubprocessError) as error:
        words = getattr(error, "stderr", None) or str(error)
        return f"{compiler} failed: {words.strip()[-200:]}"
    library.panel.restype = library.scratch_floats.restype = library.sample_floats.restype = Long
    library.pack.argtypes = [Long, Long, Pointer, Pointer]
    library.multiply.argtypes = [Long, Long, Long, Pointer, Pointer, Pointer]
    library.scratch_floats.argtypes = [Pointer, Long]
    library.sample_floats.argtypes = [Pointer]
    library.sample.argtypes = [Pointer, Long, Pointer, Pointer, ctypes.c_float, *[Pointer] * 4]
    library.decode.argtypes = [Pointer, Pointer]
    return library


def _compiled(compiler: str) -> Path:
    """Return the compiled library in the user's cache, named after source, compiler and processor."""
    source = SOURCE.read_bytes()
    name = hashlib.sha256(b"\0".join((source, *map(str.encode, (compiler, *FLAGS, _processor()))))).hexdigest()[:16]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "populora"
    library = folder / f"decode-{name}.so"
    if not library.is_file():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            built = Path(temporary, "decode.so")
            arguments = [compiler, *FLAGS, str(SOURCE), "-lm", "-o", str(built)]
            subprocess.run(arguments, check=True, capture_output=True, text=True, timeout=120)  # noqa: S603 - our own source
            built.replace(library)
    return library


def _processor() -> str:
    """Return what ``-march=native`` depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return "".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))}))
