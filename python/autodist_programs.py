"""What pip puts on PATH: `autodist` and `autodist-torch`, which lie in the package.

Beside the package, so that starting a program does not import torch.
"""

import importlib.util
import os
import runpy
import sys


def start(name, arguments):
    """One of the two takes this process's place."""
    package = os.path.join(os.path.dirname(os.path.abspath(__file__)), "autodist")
    built = runpy.run_path(os.path.join(package, "_built.py"))
    found = importlib.util.find_spec("torch")
    torch = os.path.dirname(found.origin) if found else ""
    there = runpy.run_path(os.path.join(torch, "version.py"))["__version__"] if found else "none"
    if not there.startswith(built["SERIES"] + "."):
        print(f"autodist is built for torch {built['TORCH']}, and {sys.executable} has {there}; "
              f"install autodist again (pip builds it for the torch that is there), or pip install "
              f"torch=={built['SERIES']}.*", file=sys.stderr)
        sys.exit(3)
    libraries = os.path.join(torch, "lib")
    beside = os.path.join(os.path.dirname(package), "torch")
    others = os.environ.get("LD_LIBRARY_PATH")
    # The programs look for torch beside the package, but first here, where another libtorch may be.
    if others or os.path.realpath(torch) != os.path.realpath(beside):
        os.environ["LD_LIBRARY_PATH"] = libraries + (":" + others if others else "")
    program = os.path.join(package, "bin", name)
    os.execv(program, [program, *arguments])


def autodist():
    start("autodist", sys.argv[1:])


def autodist_torch():
    start("autodist-torch", sys.argv[1:])
