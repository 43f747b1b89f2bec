"""Run the tests of numerics as other processors would: with other instruction sets, numbers of threads and addresses.

    python tests/numerics/run_variants.py KERNELS [PYTEST ARGUMENTS]

The tests are those of `FOLDERS` and `FILES`, which compare tensors or what is computed with them; slow ones are left out unless the
arguments select them. ``KERNELS`` names those of `VARIANTS` to run, as in ``default,avx2,native``. Together with ``make test`` (this
machine's instructions, one thread, aligned tensors) these have every instruction set, number of threads and alignment. torch, MKL, oneDNN
and NumPy's OpenBLAS choose their kernels by variables of the environment, which only a new process reads. Exit code 1 if the tests fail in
any variant.
"""

import os
import platform
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parents[1]
FOLDERS = ("adapters", "engine/learning", "engine/model", "engine/native", "engine/sampling")
FILES = (
    "../experiments/tiny_base/tests/test_pretrain.py", "cli/test_breed.py", "cli/test_replay.py",
    "e2e/test_training.py", "engine/cluster/test_cluster_learner.py", "evals/test_generate.py", "evals/test_merging.py",
    "runs/test_checkpoint.py", "tasks/test_coverage.py", "training/test_advantages.py", "training/test_ratings.py",
    "training/test_train_rows.py",
)  # fmt: skip

KERNELS = {
    "default": ("default", "SSE4_2", "SSE41", "Nehalem"),
    "avx2": ("avx2", "AVX2", "AVX2", "Haswell"),
    "native": (),
}
"""The newest instructions that each library of `LIBRARIES` may use. On ARM processors only torch has a choice."""
LIBRARIES = ("ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA", "OPENBLAS_CORETYPE")
MARCH = {"default": "x86-64", "avx2": "x86-64-v3", "native": "native"}
"""Instructions of the compiled decoder."""
X86 = platform.machine() in ("x86_64", "AMD64")


@dataclass(frozen=True)
class Variant:
    """How the tests are run."""

    kernels: str
    threads: int
    offset: int
    """Bytes after a multiple of 64 at which tensors from files and from NumPy begin; 12 suits no vector instruction."""

    def __str__(self) -> str:
        return f"kernels: {self.kernels}, threads: {self.threads}, tensors at multiples of 64 bytes plus {self.offset}"


VARIANTS = (Variant("default", 1, 12), Variant("avx2", 2, 12), Variant("native", 2, 12))


def main() -> None:
    kernels, arguments = sys.argv[1].split(","), sys.argv[2:]
    if unknown := {*kernels} - {*KERNELS}:
        sys.exit(f"expected kernels of {', '.join(KERNELS)}, got {', '.join(unknown)}")
    chosen = [variant for variant in VARIANTS if variant.kernels in kernels and runnable(variant)]
    if not chosen:
        sys.exit("expected kernels that this processor has: 'default' and 'native' run everywhere")
    failed = [variant for variant in chosen if not passes(variant, arguments)]
    sys.exit(f"failed: {'; '.join(map(str, failed))}" if failed else 0)


def runnable(variant: Variant) -> bool:
    """Whether this processor has the variant's instructions; says so if it does not."""
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    if variant.kernels != "avx2" or (X86 and " avx2 " in flags):
        return True
    print(f"left out, since this processor lacks AVX2: {variant}", flush=True)
    return False


def passes(variant: Variant, arguments: list[str]) -> bool:
    """Run the tests in one variant and print how long they took."""
    print(f"== {variant}", flush=True)
    limits = dict(zip(LIBRARIES if X86 else LIBRARIES[:1], KERNELS[variant.kernels], strict=False))
    limits["CFLAGS"] = f"-march={MARCH[variant.kernels]}" if X86 else ""
    threads = {"OMP_NUM_THREADS": str(variant.threads), "OMP_WAIT_POLICY": "passive"}
    environment = {**os.environ, **limits, **threads, "POPULORA_TENSOR_OFFSET": str(variant.offset)}
    started = time.monotonic()
    command = [sys.executable, "-m", "pytest", *arguments, *FOLDERS, *FILES]
    done = subprocess.run(command, check=False, cwd=TESTS, env=environment)
    print(f"== {variant}: exit code {done.returncode}, {time.monotonic() - started:.0f} s", flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    main()
