"""pip's way to AutoDist: CMake builds the Python module and the programs for the torch of the
environment, setuptools packs them (docs/pytorch.md).

AUTODIST_BUILD_DIR names CMake's folder, which is used as it is configured; by default there is one
for every torch below build/. Nothing here requires torch: pip would build in an environment of its
own with the newest one. The environment's Python is asked for the torch that it has.
"""

import os
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCE = os.path.dirname(os.path.abspath(__file__))
VERSION = "0.1.0"
PROGRAMS = ("autodist", "autodist-torch")

# Of every Linux, or as good as torch's own (libgomp): not bundled.
NOT_BUNDLED = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|stdc\+\+|gcc_s|gomp))\.so.*")


def torch_of_environment():
    """(folder, version) of the torch that this Python would import; ("", "") for none.

    Isolated, so that pip's own environment for building hides nothing.
    """
    question = ("import importlib.util as u; found = u.find_spec('torch'); "
                "print(found.origin if found else '')")
    origin = subprocess.run([sys.executable, "-I", "-c", question],
                            capture_output=True, text=True).stdout.strip()
    if not origin:
        return "", ""
    folder = os.path.dirname(origin)
    return folder, runpy.run_path(os.path.join(folder, "version.py"))["__version__"]


TORCH, TORCH_VERSION = torch_of_environment()
TORCH_SERIES = ".".join(TORCH_VERSION.split(".")[:2])


def tool(name, package):
    found = shutil.which(name)
    if found is None:
        raise SystemExit(f"autodist: building needs {name}, which is not on PATH; install it "
                         f"(Debian: {package}; all that is needed: tools/install-packages --pip, or "
                         f"without root tools/bundle-packages)")
    return found


class BuildByCMake(build_ext):
    def build_extension(self, extension):
        if not TORCH:
            raise SystemExit(f"autodist: {sys.executable} has no torch; install one first: "
                             f"{sys.executable} -m pip install torch")
        cmake = tool("cmake", "cmake")
        given = os.environ.get("AUTODIST_BUILD_DIR")
        of_torch = f"{sys.implementation.cache_tag}-torch{TORCH_VERSION.replace('+', '-')}"
        folder = os.path.join(SOURCE, given or os.path.join("build", of_torch))
        if not given:
            generator = ["-G", "Ninja"] if shutil.which("ninja") else []
            subprocess.check_call(
                [cmake, "-S", SOURCE, "-B", folder, *generator, "-DCMAKE_BUILD_TYPE=Release",
                 "-DCMAKE_CXX_FLAGS_RELEASE=-O2 -DNDEBUG",  # -O3 takes longer to compile
                 "-DAUTODIST_TESTS=OFF", f"-DAUTODIST_PYTHON={sys.executable}"])
        built = os.path.join(folder, "python", "autodist")
        if not os.path.exists(os.path.join(built, "_built.py")):
            raise SystemExit(f"autodist: building needs the headers of {sys.executable}; install them "
                             f"(Debian: python3-dev)")
        # Cores that this process may use, which `taskset` and containers limit.
        jobs = str(self.parallel or len(os.sched_getaffinity(0)))
        subprocess.check_call([cmake, "--build", folder, "--target", "autodist_python", "programs",
                               "--parallel", jobs])
        target = self.get_ext_fullpath(extension.name)
        package = os.path.dirname(target)
        os.makedirs(os.path.join(package, "bin"), exist_ok=True)
        module = "_autodist" + sysconfig.get_config_var("EXT_SUFFIX")
        self.copy_file(os.path.join(built, "_built.py"), package)
        for data in ("graphs", "clusters", "autosync"):
            inside = os.path.join("share", "autodist", data)
            self.copy_tree(os.path.join(folder, inside), os.path.join(package, inside))
        copies = {os.path.join(built, module): target}
        for program in PROGRAMS:
            copies[os.path.join(folder, "bin", program)] = os.path.join(package, "bin", program)
        for original, copy in copies.items():
            self.copy_file(original, copy)
        if os.path.exists(os.path.join(TORCH, "lib", "libtorch_cpu.so")):  # pip's
            self.stand_alone(package, copies)

    def stand_alone(self, package, copies):
        """Bundles the libraries that are neither every Linux's nor torch's, and has all of it find
        these and torch by where it lies itself. Without debugging's symbols."""
        patchelf, strip = tool("patchelf", "patchelf"), tool("strip", "binutils")
        libraries = os.path.join(package, "lib")
        shutil.rmtree(libraries, ignore_errors=True)
        os.makedirs(libraries)
        bundled = {}
        for original, copy in copies.items():
            here = "$ORIGIN" if os.path.dirname(copy) == package else "$ORIGIN/.."
            paths = f"{here}/../torch/lib:{here}/lib"
            subprocess.check_call([strip, "--strip-debug", copy])
            subprocess.check_call([patchelf, "--set-rpath", paths, copy])
            bundled.update(self.needed(original))
        for name, path in bundled.items():
            if NOT_BUNDLED.fullmatch(name) or path.startswith(TORCH + os.sep):
                continue
            copy = os.path.join(libraries, name)
            shutil.copy(path, copy)
            # XGBoost needs torch's OpenMP, also in the program that loads no torch.
            subprocess.check_call([patchelf, "--set-rpath", "$ORIGIN:$ORIGIN/../../torch/lib", copy])

    @staticmethod
    def needed(binary):
        """(name, path) of every shared library that the loader would take for it."""
        listed = subprocess.run(["ldd", binary], capture_output=True, text=True, check=True).stdout
        lines = (line.split() for line in listed.splitlines())
        return [(words[0], words[2]) for words in lines if len(words) > 2 and words[1] == "=>"]


setup(
    version=f"{VERSION}+torch{TORCH_SERIES}" if TORCH else VERSION,
    install_requires=[f"torch=={TORCH_SERIES}.*" if TORCH else "torch"],
    packages=["autodist", "autodist.checkpoint", "autodist.strategy"],
    py_modules=["autodist_programs"],
    package_dir={"": "python"},
    package_data={"autodist": ["py.typed", "*.pyi"]},
    ext_modules=[Extension("autodist._autodist", sources=[])],
    cmdclass={"build_ext": BuildByCMake},
)
