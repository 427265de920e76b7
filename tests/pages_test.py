"""What `tools/pages` finds, on small source trees made for it: with git, in a shallow clone, without."""

import importlib.machinery
import importlib.util
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools/docs"))
from figures import DETERMINISTIC, MEASURED, SAMPLED, Figures  # noqa: E402


def tool():
    """tools/pages as a module."""
    loader = importlib.machinery.SourceFileLoader("pages", str(ROOT / "tools/pages"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("pages", loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


PAGES = tool()
# The program of these trees prints a table, and of `quick` a part of it.
PROGRAM = """#!/bin/sh
[ ! -e local.calibration.yml ] || exit 9
table='| a | b |\\n|---|---|\\n| 1 | 2.50 |\\n'
[ "$1" = quick ] || table="$table| 3 | 4.75 |\\n"
while [ $# -gt 1 ]; do shift; done
printf "# Title\\n\\n$table" > "$1"
"""
MEASURES = Figures("speed", "docs/benchmarks/speed.md", MEASURED, ("tools/measure",), ("engine",))
LISTED = (Figures("same", "docs/benchmarks/same.md", DETERMINISTIC, ("autodist", "all"), ("engine",)),
          Figures("long", "docs/benchmarks/long.md", SAMPLED, ("autodist", "all"), ("engine",),
                  sample=("autodist", "quick")), MEASURES)


class Tree:
    def __init__(self, folder):
        self.root = pathlib.Path(folder)
        self.write("engine/a.cc", "int a;\n")
        self.write("engine/a_test.cc", "int test;\n")
        self.write("program", PROGRAM)
        (self.root / "program").chmod(0o755)
        self.write("README.md", "# Name\n")
        self.write("docs/benchmarks/speed.md", "# Speed\n\n| what | x | y |\n|---|---|---|\n| 1 | 2 | 3.5 |\n")
        for name in ("same", "long"):
            self.write(f"docs/benchmarks/{name}.md", "# Title\n")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def read(self, name):
        return (self.root / name).read_text()

    def edit(self, name, old, new):
        assert old in self.read(name), f"{name} lacks '{old}':\n{self.read(name)}"
        self.write(name, self.read(name).replace(old, new))

    def git(self, *words):
        subprocess.run(["git", "-C", str(self.root), "-c", "user.name=n", "-c", "user.email=n@n", *words],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def pages(self):
        return PAGES.Pages(self.root, LISTED, str(self.root / "program"))

    def prepare(self):
        pages = self.pages()
        pages.record("speed", None)
        pages.update(["same", "long"])
        assert not pages.problems, pages.problems

    def problems(self, *parts):
        """What --check says; each of `parts` has to be in a line of it, and without any it says nothing."""
        pages = self.pages()
        pages.check_written()
        pages.check_made()
        for part in parts:
            assert any(part in line for line in pages.problems), f"'{part}' is not in {pages.problems}"
        assert parts or not pages.problems, pages.problems

    def update(self, *names):
        pages = self.pages()
        pages.update(names)
        assert not pages.problems, pages.problems


def check_made_again(tree):
    tree.edit("docs/benchmarks/same.md", "4.75", "4.76")
    tree.problems("same.md: `autodist all` says otherwise")
    tree.update("same")
    tree.write("local.calibration.yml", "cores: 1\n")  # of whoever measured there
    tree.problems()
    # Of what takes long a part is made again, and a row by hand is seen by its digest.
    tree.edit("program", "2.50", "2.60")
    tree.problems("long.md: `autodist quick` says otherwise")
    tree.edit("program", "2.60", "2.50")
    tree.edit("docs/benchmarks/long.md", "4.75", "4.76")
    tree.problems("tables of long are not those that were recorded")
    tree.edit("docs/benchmarks/long.md", "4.76", "4.75")
    tree.problems()
    tree.edit("program", "printf", "exit 7; printf")
    tree.problems("same: exit code 7")
    tree.edit("program", "exit 7; ", "")


def check_banner(tree):
    tree.write("engine/a_test.cc", "int another;\n")
    tree.problems()
    tree.write("engine/a.cc", "int b;\n")
    tree.problems("speed is older than engine and does not say so", "long is older than engine")
    tree.write("README.md", "# Name\n\nIt is 3.5 times as fast.<!-- claims speed: 3.5 -->\n")
    tree.problems("README.md: claims 3.5 of the figures 'speed', which are older")
    tree.write("README.md", "# Name\n")
    tree.update()
    assert "> **Older than what it measures.**" in tree.read("docs/benchmarks/speed.md")
    tree.problems()
    tree.update("long")  # made again, so it is not old any more
    assert "Older" not in tree.read("docs/benchmarks/long.md")
    tree.write("engine/a.cc", "int a;\n")
    tree.problems("speed is not older than what it depends on, as its banner says", "long is older")
    tree.update()
    assert "Older" not in tree.read("docs/benchmarks/speed.md")
    tree.update("long")
    tree.problems()
    tree.edit("docs/benchmarks/speed.md", "| 3.5 |", "| 9.5 |")
    tree.problems("tables of speed are not those that were recorded")
    tree.edit("docs/benchmarks/speed.md", "| 9.5 |", "| 3.5 |")


def check_claims(tree):
    def readme(text, *parts):
        tree.write("README.md", "# Name\n\n" + text)
        tree.problems(*parts)
    readme("It is 3.5 times as fast.<!-- claims speed: 3.5 -->\n")
    readme("It is 3.5 times as fast.\n", "README.md: '3.5 times' is nobody's figure")
    readme("It is 3.6 times as fast.<!-- claims speed: 3.6 -->\n", "has no such figure any more")
    readme("It is fast.<!-- claims speed: 3.5 -->\n", "does not say so in that paragraph")
    readme("It is fast.<!-- claims sped: 3.5 -->\n", "claims of 'sped', which no page has figures of")
    readme("- It is 3.5 times as fast.\n- And more.<!-- claims speed: 3.5 -->\n", "does not say so")
    readme("```output\n3.5 times\n```\n")
    tree.write("README.md", "# Name\n")
    tree.write("docs/guide.md", "# Guide\n\n3.4 times.<!-- claims speed: 3.4 -->\n")
    tree.problems("docs/guide.md: claims 3.4 of 'speed'")
    tree.write("docs/guide.md", "# Guide\n\n| a | b | c |\n|---|---|---|\n| x | 1 | 2 |\n| y | 3 | 4 |\n")
    tree.problems("docs/guide.md: a table of figures that no command is known for")
    (tree.root / "docs/guide.md").unlink()
    tree.write("docs/benchmarks/new.md", "# New\n")
    tree.problems("docs/benchmarks/new.md: no command is known for it")
    (tree.root / "docs/benchmarks/new.md").unlink()
    tree.write("docs/benchmarks/index.md", "# What there is\n")
    tree.problems()


def check_history(tree, folder):
    """By contents: a shallow clone and a copy without git know what a whole clone knows."""
    tree.git("add", "-A")
    tree.git("commit", "-qm", "made")
    made = tree.pages().tree.commit()
    digest = tree.pages().tree.digest("engine")
    assert digest == tree.pages().tree.digest("engine", made)
    tree.write("engine/a.cc", "int b;\n")
    tree.git("commit", "-qam", "changed")
    pages = tree.pages()
    pages.record("speed", made)  # what was measured before is old at once
    assert "Older" in tree.read("docs/benchmarks/speed.md") and not pages.problems
    tree.update("long")
    tree.git("commit", "-qam", "banner")
    tree.problems()

    shallow = pathlib.Path(folder) / "shallow"
    subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{tree.root}", str(shallow)], check=True)
    bare = pathlib.Path(folder) / "bare"
    shutil.copytree(shallow, bare, ignore=shutil.ignore_patterns(".git"))
    for root in (shallow, bare):
        tree.root = root
        tree.problems()
        assert tree.pages().tree.digest("engine", None) != digest
        try:
            tree.pages().record("speed", made)
            raise AssertionError("a commit that is not there was recorded")
        except PAGES.Wrong as wrong:
            assert "a whole clone has the history" in str(wrong), wrong
        tree.edit("docs/benchmarks/speed.md", "> **Older than what it measures.**", "> **Of today.**")
        tree.problems("does not say so")


def main():
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(pathlib.Path(folder) / "tree")
        tree.problems("speed have no record: tools/pages --record speed", "tools/pages --update same")
        tree.git("init", "-q")
        tree.git("add", "-A")
        tree.git("commit", "-qm", "first")
        tree.prepare()
        tree.problems()
        check_made_again(tree)
        check_banner(tree)
        check_claims(tree)
        check_history(tree, folder)
    print("ok")


if __name__ == "__main__":
    main()
