"""What `cmake --install` installs is a package that another project finds, builds with and runs.

    package_test.py BUILD SOURCE PYTHON

PYTHON is the one whose torch is built on, which the package may name.
"""

import os
import re
import subprocess
import sys
import tempfile


def run(*command, **options):
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


build, source, python = sys.argv[1:]
with tempfile.TemporaryDirectory() as folder:
    prefix = os.path.join(folder, "prefix")
    run("cmake", "--install", build, "--prefix", prefix)
    config = [os.path.join(where, name) for where, _, names in os.walk(prefix) for name in names
              if name.endswith(".cmake")]
    for path in config:
        with open(path, encoding="utf-8") as file:
            text = file.read().replace(python, "")
        for own in (build, source):
            assert own not in text, f"{path} names {own}"
    # The light program finds its shipped graphs beside it.
    shown = run(os.path.join(prefix, "bin", "autodist"), "inspect", "vgg16")
    assert "138357544" in re.sub(r"[,_ ]", "", shown), shown

    consumer = os.path.join(folder, "build")
    run("cmake", "-S", os.path.join(source, "tests", "consumer"), "-B", consumer,
        f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_BUILD_TYPE=Debug")
    run("cmake", "--build", consumer)
    trained = run(os.path.join(consumer, "train"), cwd=folder)
    assert re.search(r"^trained: loss 0\.0", trained, re.M), trained
    print("installed, found, built with, and trains")
