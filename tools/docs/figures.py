"""Figures in Markdown pages: which command made them, of what, and whether that has changed since.

Figures stand between two comments. The second one holds a record, in front of it stands a line for
readers, and, where what was measured has changed since, a banner stands behind the first one:

    <!-- figures: NAME -->
    > **Older than what it measures.** …
    tables and prose
    *Measured by `COMMAND` at COMMIT …*
    <!-- end of figures: {"commit": …, "paths": {PATH: DIGEST}, "tables": DIGEST} -->

Digests are of contents, not of history, so a shallow clone and a tree without git know as much.
"""

import dataclasses
import hashlib
import json
import os
import re
import subprocess

# Always the same | the same, but too long to make whenever it is checked | a clock's.
DETERMINISTIC, SAMPLED, MEASURED = "deterministic", "sampled", "measured"

BANNER = "> **Older than what it measures.** "
NOTE = "*How: "
DIGEST_LENGTH = 12
# What no figure depends on.
LEFT_OUT = re.compile(r"(_test\.cc|_test\.py|_fuzz\.cc|\.md|\.pyc|/CMakeLists\.txt)$"
                      r"|/testdata/|/testing/|/__pycache__/")


class Wrong(Exception):
    """What is wrong with a page, in one line."""


@dataclasses.dataclass(frozen=True)
class Figures:
    name: str
    page: str  # in the repository
    kind: str
    # Words; the first one `autodist`, or a program of the repository. Nothing: by hand, as the text says.
    command: tuple
    paths: tuple  # what the figures are of: files and folders of the repository
    without: tuple = ()  # beginnings of names in these of which the figures are not
    writes: bool = True  # the command takes `-o PAGE`; otherwise it prints
    whole: bool = True  # the page is the figures, behind its title; otherwise markers bound them
    sample: tuple = ()  # of SAMPLED: the command whose table rows have to be among the figures'

    @property
    def says(self):
        return f"`{' '.join(self.command)}`" if self.command else "by hand, as said"


@dataclasses.dataclass
class Found:
    """A page, cut at the figures. `record` is None where the page has none yet."""
    before: str
    body: str
    record: dict | None
    after: str
    banner: bool
    note: str


def begin_of(figures):
    return f"<!-- figures: {figures.name} -->"


def end_of(record):
    return f"<!-- end of figures: {json.dumps(record, sort_keys=True)} -->"


def find(text, figures):
    pattern = (r"(?P<before>.*?)" + re.escape(begin_of(figures)) + r"\n(?P<inside>.*?)"
               r"<!-- end of figures: (?P<record>\{[^\n]*\}) -->\n?(?P<after>.*)")
    found = re.fullmatch(pattern, text, re.S)
    if not found:
        if "<!-- figures: " in text and figures.whole or not figures.whole:
            raise Wrong(f"{figures.page}: no figures named {figures.name}: expected "
                        f"'{begin_of(figures)}' and '{end_of({})}' around them")
        title, _, rest = text.partition("\n")
        return Found(title + "\n\n", rest.strip("\n"), None, "", False, "")
    try:
        record = json.loads(found["record"])
    except json.JSONDecodeError as error:
        raise Wrong(f"{figures.page}: the record of {figures.name} is no JSON: {error}") from None
    lines = found["inside"].strip("\n").split("\n")
    banner = lines[0].startswith(BANNER)
    lines = lines[1:] if banner else lines
    note = lines.pop() if lines and lines[-1].startswith(NOTE) else ""
    return Found(found["before"], "\n".join(lines).strip("\n"), record or None, found["after"], banner,
                 note)


def banner_of(record):
    return (BANNER + f"These figures are of commit {record['commit']}, and some of what they depend on "
            "(named below them) has changed since. They say how it was.")


def note_of(figures, record):
    said = {DETERMINISTIC: "the same on every machine; `tools/pages --check` makes them again",
            SAMPLED: "the same on every machine, in minutes; `tools/pages --check` makes "
                     f"`{' '.join(figures.sample)}` again",
            MEASURED: "measured, so that no two runs are alike"}[figures.kind]
    paths = ", ".join(f"`{path}`" for path in figures.paths)
    return (NOTE + f"{figures.says}, at commit {record['commit']}; {said}. "
            f"They depend on {paths}.*")


def render(figures, found):
    """The page, with what is known of its figures."""
    parts = [begin_of(figures)]
    if found.banner:
        parts.append(banner_of(found.record))
    parts += [found.body, note_of(figures, found.record), end_of(found.record)]
    return found.before + "\n\n".join(parts) + "\n" + found.after


def body_of(output):
    """Of a page that a command wrote: what is behind the title."""
    if output.startswith("# "):
        output = output.partition("\n")[2]
    return output.strip("\n")


def rows(body):
    return [line for line in body.split("\n") if line.startswith("|")]


def short(hasher):
    return hasher.hexdigest()[:DIGEST_LENGTH]


def digest_of_tables(body):
    return short(hashlib.sha1("\n".join(rows(body)).encode()))


class Tree:
    """The files of a source tree, with git or without."""

    def __init__(self, root):
        self.root = root
        self.git = (root / ".git").exists() and self.ask("rev-parse", "--git-dir") is not None

    def ask(self, *words):
        try:
            done = subprocess.run(["git", "-C", str(self.root), *words], stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, check=False)
        except OSError:
            return None
        return done.stdout.decode() if done.returncode == 0 else None

    def commit(self):
        said = self.ask("rev-parse", "--short=7", "HEAD") if self.git else None
        return said.strip() if said else "unknown"

    def files(self, path):
        if self.git:
            listed = self.ask("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", path)
            names = set((listed or "").split("\0"))
        elif (self.root / path).is_dir():
            names = {os.path.relpath(os.path.join(folder, name), self.root)
                     for folder, _, files in os.walk(self.root / path) for name in files}
        else:
            names = {path}
        return {name for name in names if os.path.lexists(self.root / name) and name}

    def blob(self, name):
        """As git names a file's content."""
        place = self.root / name
        content = os.readlink(place).encode() if place.is_symlink() else place.read_bytes()
        return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()

    def digest(self, path, commit=None, without=()):
        def counts(name):
            return not LEFT_OUT.search(name) and not name.startswith(without)

        if commit is None:
            blobs = {name: self.blob(name) for name in self.files(path) if counts(name)}
        else:
            listed = self.ask("ls-tree", "-r", "-z", commit, "--", path)
            if listed is None:
                raise Wrong(f"commit {commit} is not known here: a whole clone has the history")
            entries = [entry.partition("\t") for entry in listed.split("\0") if entry]
            blobs = {name: head.split()[2] for head, _, name in entries if counts(name)}
        if not blobs:
            raise Wrong(f"nothing at '{path}'" + (f" in commit {commit}" if commit else ""))
        return short(hashlib.sha1("".join(f"{name} {blobs[name]}\n" for name in sorted(blobs)).encode()))

    def record(self, figures, body, commit=None):
        paths = {}
        for path in figures.paths if figures.kind != DETERMINISTIC else ():
            paths[path] = self.digest(path, commit, figures.without)
        return {"commit": commit or self.commit(), "paths": paths, "tables": digest_of_tables(body)}

    def changed(self, figures, record):
        """The paths that are not what they were; none of what is made again whenever it is checked."""
        if figures.kind == DETERMINISTIC:
            return []
        return [path for path in figures.paths if record["paths"].get(path) != self.digest(path, without=figures.without)]
