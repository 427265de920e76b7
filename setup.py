"""pip's way to the Python module: CMake builds the extension, setuptools packs it (docs/python.md).

AUTODIST_BUILD_DIR names CMake's folder, build/python by default; one that is configured already is
used as it is.
"""

import os
import subprocess
import sys
import sysconfig

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCE = os.path.dirname(os.path.abspath(__file__))


class BuildByCMake(build_ext):
    def build_extension(self, extension):
        folder = os.path.join(SOURCE, os.environ.get("AUTODIST_BUILD_DIR", "build/python"))
        if not os.path.exists(os.path.join(folder, "CMakeCache.txt")):
            generator = ["-G", "Ninja"] if self.has_ninja() else []
            subprocess.check_call(
                ["cmake", "-S", SOURCE, "-B", folder, *generator, "-DCMAKE_BUILD_TYPE=Release",
                 "-DAUTODIST_TESTS=OFF", f"-DAUTODIST_PYTHON={sys.executable}"])
        # Cores that this process may use, which `taskset` and containers limit.
        jobs = str(self.parallel or len(os.sched_getaffinity(0)))
        subprocess.check_call(
            ["cmake", "--build", folder, "--target", "autodist_python", "--parallel", jobs])
        built = os.path.join(
            folder, "python", "autodist", "_autodist" + sysconfig.get_config_var("EXT_SUFFIX"))
        target = self.get_ext_fullpath(extension.name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        self.copy_file(built, target)

    @staticmethod
    def has_ninja():
        try:
            return subprocess.call(["ninja", "--version"], stdout=subprocess.DEVNULL) == 0
        except OSError:
            return False


setup(
    packages=["autodist", "autodist.checkpoint", "autodist.strategy"],
    package_dir={"": "python"},
    package_data={"autodist": ["py.typed", "*.pyi"]},
    ext_modules=[Extension("autodist._autodist", sources=[])],
    cmdclass={"build_ext": BuildByCMake},
)
