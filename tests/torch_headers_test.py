"""A build on pip's torch reads no header of another torch that the system may have.

    torch_headers_test.py BUILD

A header that the wheel lacks would be found there without a word. Ninja knows what every object was
compiled from.
"""

import re
import subprocess
import sys

FOREIGN = re.compile(r"^\s+(/usr/(local/)?include/(torch|ATen|c10|caffe2|gloo|pybind11)/\S+)$")

listed = subprocess.run(["ninja", "-C", sys.argv[1], "-t", "deps"], capture_output=True, text=True)
assert listed.returncode == 0, listed.stderr
assert "/torch/" in listed.stdout, "no object was compiled with torch's headers"
foreign = {}
for line in listed.stdout.splitlines():
    if line and not line[0].isspace():
        of = line.split(":")[0]
    elif found := FOREIGN.match(line):
        foreign.setdefault(found.group(1), of)
for header, of in sorted(foreign.items()):
    print(f"{of} is compiled with {header}, expected the wheel's or none")
sys.exit(1 if foreign else 0)
