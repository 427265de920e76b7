"""Every block of code in the documentation runs, and what it prints is what the page says.

    docs_test.py AUTODIST [PAGE…]

A page has a scratch folder in which its blocks run in order, with AutoDist's programs and the
interpreter with PyTorch on PATH:

    sh, python    run; `exit=4` where that is the exit code expected
    output        of the block before; `…` stands for anything in a line, or alone for any lines
    yaml, pbtxt   are inspected as a cluster or a strategy
    cpp           lines of the file named by `file=`, which runs as a test of its own; `…` is a gap;
                  python with `file=examples/…`, too
    text          is no code

`norun="reason"` leaves a block out and is listed; `file=NAME` keeps a block in the scratch folder.
Beside that: the page of environment variables lists each that the code reads, every decision says
whether it is in force, the index of figures names every page of its folder, README is short, and the
site builds.
Exit code 77 (skipped) where Python has no PyTorch.
"""

import concurrent.futures
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools/docs"))
import fences  # noqa: E402

INSPECTED = {"yaml": "yml", "pbtxt": "pbtxt"}
BLOCK_SECONDS = 240  # on a machine that others keep busy; a second or two on an idle one
# How the code calls what reads a variable.
ASKS = r"(?:env\w*|has|text|number|maybe|or_empty|place)(?:\(\))?"
# Of a decision: "in force.", "in force; what it calls X is Y today.", "in force, but … (superseded in
# part by NNN).", "superseded by NNN."
STATUS = re.compile(r"in force(?:[,;] \S.*)?\.|superseded by \d{3}\.")
# A block often waits for its ranks to meet, or for a disk.
PAGES_AT_ONCE = 1 + len(os.sched_getaffinity(0))


class Wrong(Exception):
    pass


def pages():
    found = sorted((ROOT / "docs").rglob("*.md")) + sorted(ROOT.glob("*.md"))
    return [str(path.relative_to(ROOT)) for path in found]


def check_output(expected, got):
    lines = []
    for line in expected.rstrip("\n").split("\n"):
        if line.strip() == "…":
            lines.append(r"(?:.*\n)*?")
        else:
            lines.append(".*".join(map(re.escape, line.rstrip().split("…"))) + r"\s*?\n")
    got = "".join(line.rstrip() + "\n" for line in got.rstrip("\n").split("\n"))
    if not re.fullmatch("".join(lines), got):
        raise Wrong(f"printed something else:\n{got}")


def stripped(line):
    return re.sub(r"\s+", " ", line).strip()


def check_excerpt(block):
    """Its lines stand in the file, one after the other, but for indentation."""
    path = ROOT / block.attributes.get("file", "")
    if not path.is_file():
        raise Wrong("no file= of the repository, of which it is a part")
    lines = [stripped(line) for line in path.read_text().split("\n")]
    at = 0
    for run in re.split(r"^\s*(?://)?\s*…\s*$", block.text, flags=re.M):
        run = [stripped(line) for line in run.strip("\n").split("\n")]
        while lines[at : at + len(run)] != run:
            at += 1
            if at > len(lines):
                raise Wrong(f"{block.attributes['file']} says it otherwise; first line: {run[0]}")
        at += len(run)


class Page:
    def __init__(self, path, programs, folder):
        self.path, self.folder, self.printed = path, folder, None
        home = folder / "home"
        home.mkdir()
        self.scratch = folder / "scratch"
        self.scratch.mkdir()
        # Python's module, where it is built, lies beside the programs' folder.
        python = pathlib.Path(sys.executable).parent
        self.environment = dict(os.environ, PATH=f"{programs}:{python}:{os.environ['PATH']}", HOME=str(home),
                                PYTHONPATH=str(programs.parent / "python"), LC_ALL="C.UTF-8",
                                AUTODIST_HISTORY=str(home / "history"))

    def run(self, command, wanted=0):
        finished = subprocess.run(command, cwd=self.scratch, env=self.environment, text=True,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=BLOCK_SECONDS)
        if finished.returncode != wanted:
            raise Wrong(f"exit code {finished.returncode}, {wanted} expected:\n{finished.stdout}")
        self.printed = finished.stdout

    def check(self, block):
        kept = block.attributes.get("file")
        is_excerpt = block.language == "cpp" or (kept or "").startswith("examples/")
        if is_excerpt:
            return check_excerpt(block)
        if kept:
            (self.scratch / kept).write_text(block.text)
        wanted = int(block.attributes.get("exit", 0))
        if block.language == "sh":
            self.run(["bash", "-euo", "pipefail", "-c", block.text], wanted)
        elif block.language == "python":
            script = kept or "block.py"  # a file: torch.jit.script reads its source again
            (self.scratch / script).write_text(block.text)
            self.run([sys.executable, script], wanted)
        elif block.language == "output":
            if self.printed is None:
                raise Wrong("nothing was run before it")
            check_output(block.text, self.printed)
        elif block.language in INSPECTED:
            name = kept or f"block.{INSPECTED[block.language]}"
            (self.scratch / name).write_text(block.text)
            self.run(["autodist", "inspect", name])
        elif block.language == "json":
            json.loads(block.text)
        elif block.language != "text":
            raise Wrong(f"no language that runs: '{block.language}'")


def check_page(path, programs):
    """What is wrong, how many blocks ran, which were left out, and how long it took."""
    wrong, ran, left_out, begin = [], 0, [], time.monotonic()
    with tempfile.TemporaryDirectory(prefix="docs-") as folder:
        page = Page(path, programs, pathlib.Path(folder))
        for block in fences.blocks((ROOT / path).read_text()):
            where = f"{path}:{block.line}"
            if "norun" in block.attributes:
                left_out.append(f"{where}: {block.attributes['norun']}")
                if not block.attributes["norun"]:
                    wrong.append(f"{where}: norun without a reason")
                continue
            try:
                page.check(block)
                ran += block.language != "text"
            except (Wrong, ValueError, subprocess.TimeoutExpired) as error:
                wrong.append(f"{where}: {error}")
    return wrong, ran, left_out, time.monotonic() - begin


def variables_read():
    """Names that the code asks the environment for."""
    names = set()
    for path in [each for room in ("app", "job", "studies") for each in (ROOT / "autodist" / room).rglob("*")]:
        if path.suffix not in (".cc", ".h") or path.stem.endswith("_test"):
            continue
        text = path.read_text()
        names |= set(re.findall(r'"([A-Z][A-Z0-9]*_[A-Z0-9_]*)=?"', text))
        names |= set(re.findall(ASKS + r'\("([A-Z]\w+)"', text))
    return names


def check_variables():
    page = (ROOT / "docs/environment-variables.md").read_text()
    listed = set(re.findall(r"`([A-Z]\w*\*?)`", page))
    missing = [name for name in sorted(variables_read())
               if name not in listed and not (name.endswith("_") and name + "*" in listed)]
    return [f"docs/environment-variables.md: {name} is not listed" for name in missing]


def status_problems(text, numbers):
    """What is wrong with the line below a decision's title; numbers are those of all decisions."""
    found = re.match(r"# \d{3}\b.*\n\n\*\*Status:\*\* (.*)\n\n", text)
    if not found:
        return ["no line '**Status:** …' below the title"]
    named = re.findall(r"(?:\bby |\(|\[)(\d{3})\b", found.group(1))
    said = re.sub(r"\[(\d{3})\]\([^)]*\)", r"\1", found.group(1))  # without links
    problems = [] if STATUS.fullmatch(said) else [f"a status of no known form: '{said}'"]
    if "superseded in part" in said and not re.search(r"\(superseded in part by \d{3}\)", said):
        problems.append("superseded in part, and not by which: '(superseded in part by NNN)'")
    return problems + [f"names {each}, which is no other decision"
                       for each in dict.fromkeys(named) if each not in numbers]


def check_decisions():
    texts = {path.name: path.read_text() for path in sorted((ROOT / "docs/decisions").glob("*.md"))}
    numbers = {name[:3] for name in texts}
    return [f"docs/decisions/{name}: {problem}" for name, text in texts.items()
            for problem in status_problems(text, numbers - {name[:3]})]


def check_index():
    folder = ROOT / "docs/benchmarks"
    index = (folder / "index.md").read_text()
    return [f"docs/benchmarks/index.md: no link to {path.name}" for path in sorted(folder.glob("*.md"))
            if path.name != "index.md" and f"]({path.name})" not in index]


def check_readme():
    """It is there to be skimmed."""
    lines = (ROOT / "README.md").read_text().splitlines()
    long = [f"README.md: line {number} has {len(line)} characters, 100 at most"
            for number, line in enumerate(lines, 1) if len(line) > 100]
    return long + ([f"README.md: {len(lines)} lines, 120 at most"] if len(lines) > 120 else [])


def check_site():
    with tempfile.TemporaryDirectory(prefix="docs-") as folder:
        built = subprocess.run([str(ROOT / "tools/build-docs"), folder], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if "No module named 'markdown'" in built.stdout:
        print("SKIPPED: the site (python3-markdown is missing; `make docs` installs it)")
        return []
    return [] if built.returncode == 0 else [built.stdout]


def weight(path):
    """How much of a page runs: the longest begins first, so that none runs on alone at the end."""
    blocks = fences.blocks((ROOT / path).read_text())
    return sum(block.text.count("autodist") + block.text.count("import torch") for block in blocks
               if block.language in ("sh", "python") and "norun" not in block.attributes)


def main():
    programs = pathlib.Path(sys.argv[1]).resolve().parent
    # Blocks run with this Python, for which the module is built.
    if not all(map(importlib.util.find_spec, ("torch", "numpy"))):
        print(f"SKIPPED: {sys.executable} has no PyTorch or no NumPy")
        sys.exit(77)
    wrong, ran, left_out = check_variables() + check_decisions() + check_index() + check_readme(), 0, []
    paths = sorted(sys.argv[2:] or pages(), key=weight, reverse=True)
    with concurrent.futures.ThreadPoolExecutor(PAGES_AT_ONCE) as pool:
        results = [pool.submit(check_page, path, programs) for path in paths]
        wrong += pool.submit(check_site).result()
        for path, result in zip(paths, results):
            page_wrong, page_ran, page_left_out, seconds = result.result()
            wrong, ran, left_out = wrong + page_wrong, ran + page_ran, left_out + page_left_out
            if page_ran:
                print(f"{path}: {page_ran} blocks, {seconds:.1f} s", flush=True)
    print(f"{ran} blocks ran; {len(left_out)} are left out:")
    for each in left_out:
        print("  " + each)
    if wrong:
        sys.exit("\n".join(["", *wrong]))


main()
