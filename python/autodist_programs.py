"""What pip puts on PATH: `autodist` and `autodist-torch`, which lie in the package.

Beside the package, so that starting a program does not import torch.
"""

import importlib.util
import os
import sys


def _start(name):
    package = os.path.join(os.path.dirname(os.path.abspath(__file__)), "autodist")
    facts = {}
    with open(os.path.join(package, "_built.py"), encoding="utf-8") as file:
        exec(file.read(), facts)
    found = importlib.util.find_spec("torch")
    if found is None:
        print(f"autodist: built for torch {facts['TORCH']}, and {sys.executable} has none; install "
              f"it: {sys.executable} -m pip install torch=={facts['SERIES']}.*", file=sys.stderr)
        sys.exit(3)
    torch = os.path.dirname(found.origin)
    libraries = os.path.join(torch, "lib")
    beside = os.path.join(os.path.dirname(package), "torch")
    if os.path.realpath(torch) != os.path.realpath(beside):  # where the programs look for it
        others = os.environ.get("LD_LIBRARY_PATH")
        os.environ["LD_LIBRARY_PATH"] = libraries + (":" + others if others else "")
    program = os.path.join(package, "bin", name)
    os.execv(program, [program, *sys.argv[1:]])


def autodist():
    _start("autodist")


def autodist_torch():
    _start("autodist-torch")
