"""Entry of the isolated interpreter, run by file path: ``boot.py zygote FD SETTINGS`` or ``boot.py probe LAYER SETTINGS``.

The interpreter has no site-packages and no search path to this project. The two packages are declared by hand while the jail's
own modules load, so that no ``__init__`` runs and a program cannot import the rest of populora.
"""

import json
import os
import sys
import types


def main(mode: str, what: str, settings: str) -> None:
    """Load the jail's modules and run ``mode``."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    packages = [types.ModuleType(name) for name in ("populora", "populora.sandbox")]
    for package, folder in zip(packages, ("", "sandbox"), strict=True):
        package.__path__ = [os.path.join(root, folder)]
        sys.modules[package.__name__] = package
    from populora.sandbox import probe, zygote

    for package in packages:
        package.__path__ = []
    sys.argv, sys.orig_argv = [""], [""]  # a program must not see the settings
    if mode == "zygote":
        zygote.serve_jobs(int(what), json.loads(settings))
    else:
        sys.stdout.write(json.dumps(probe.attempt(what, json.loads(settings))))


if __name__ == "__main__":
    main(*sys.argv[1:])
