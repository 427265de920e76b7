"""pip installs the module, which then works from where it was put.

    install_test.py SOURCE BUILD
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile

import comparing

comparing.skip_without_torch()

for needed in ("pip", "setuptools", "wheel"):
    if importlib.util.find_spec(needed) is None:
        print(f"SKIPPED: no module {needed}")
        sys.exit(77)

source, build = sys.argv[1:]
with tempfile.TemporaryDirectory() as folder:
    # A copy of what pip reads: it leaves files of its own beside it.
    copied = os.path.join(folder, "source")
    shutil.copytree(os.path.join(source, "python"), os.path.join(copied, "python"),
                    ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    for name in ("README.md", "pyproject.toml", "setup.py"):
        shutil.copy(os.path.join(source, name), copied)
    target = os.path.join(folder, "target")
    installed = subprocess.run(
        [sys.executable, "-m", "pip", "install", copied, "--target", target, "--no-deps",
         "--no-build-isolation", "--no-index", "--break-system-packages"],
        env={**os.environ, "AUTODIST_BUILD_DIR": build}, capture_output=True, text=True)
    assert installed.returncode == 0, installed.stdout + installed.stderr
    for name in ("__init__.pyi", "py.typed"):
        assert os.path.exists(os.path.join(target, "autodist", name)), name
    example = comparing.run(os.path.join(source, "examples", "own_model.py"), "local:1",
                            PYTHONPATH=target)
    assert "trained: loss 0.0" in example.stdout, example
    where = subprocess.run([sys.executable, "-c", "import autodist; print(autodist.__file__)"],
                           env={**os.environ, "PYTHONPATH": target}, capture_output=True, text=True)
    assert where.stdout.startswith(target), where

    # Another libtorch where the loader looks first.
    other = os.path.join(folder, "other")
    os.makedirs(other)
    for name in ("libtorch.so", "libtorch_cpu.so", "libc10.so"):
        open(os.path.join(other, name), "w").close()

    def start(*words):
        code = "import autodist_programs; autodist_programs.autodist_torch()"
        return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": target, "LD_LIBRARY_PATH": other})

    started = start("capture", "--help")
    assert started.returncode == 0, started
    light = start("version")
    assert light.returncode == 2 and "autodist version" in light.stderr, light
    print("installed by pip, and trains")
