"""A torch that cannot be built on is named when CMake looks for it, with what to do.

    torch_found_test.py SOURCE
"""

import os
import re
import subprocess
import sys
import tempfile
import venv

source = sys.argv[1]


def complaint_about(python):
    """What CMake says, in one line."""
    done = subprocess.run(["cmake", f"-DAUTODIST_PYTHON={python}", "-P",
                           os.path.join(source, "cmake", "Torch.cmake")],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode != 0, done.stdout
    return re.sub(r"\s+", " ", done.stdout)


def expect(said, *parts):
    for part in parts:
        assert part in said, f"expected '{part}' in: {said}"


with tempfile.TemporaryDirectory() as folder:
    missing = os.path.join(folder, "nothing")
    expect(complaint_about(missing), f"AUTODIST_PYTHON={missing} cannot be asked for its torch",
           "expected a Python interpreter")

    environment = os.path.join(folder, "v")
    venv.create(environment)
    python = os.path.join(environment, "bin", "python")
    expect(complaint_about(python), f"{python} has no torch", f"{python} -m pip install torch")

    packages = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
                              stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    torch = os.path.join(packages, "torch")
    config = os.path.join(torch, "share", "cmake", "Torch")
    os.makedirs(config)
    open(os.path.join(torch, "__init__.py"), "w", encoding="utf-8").close()
    for version, flags in (("1.12.1", ""), ("2.6.0+cu118", "-D_GLIBCXX_USE_CXX11_ABI=0")):
        with open(os.path.join(torch, "version.py"), "w", encoding="utf-8") as file:
            file.write(f"__version__ = '{version}'\ncuda = None\n")
        with open(os.path.join(config, "TorchConfig.cmake"), "w", encoding="utf-8") as file:
            file.write(f'set(TORCH_CXX_FLAGS "{flags}")\n')
        expect(complaint_about(python), f"torch {version} of {python}", "expected 2.7 or later",
               f"{python} -m pip install --upgrade torch")
print("each torch that cannot be built on is named")
