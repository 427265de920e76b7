#!/usr/bin/python3
"""Makes the pictures of reports in docs/figures again, to be looked at.

    tools/docs/screenshots.py [--autodist AUTODIST] [--folder docs/figures]

Needs Chromium, a build with libtorch, and root for the hosts of the testbed.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
import devtools  # noqa: E402

WIDTH, PHONE = 1280, 390


def pages_of(autodist, folder):
    """(name, page, width, height, theme) of each picture."""
    def report(name, *words, before=()):
        page = folder / f"{name}.html"
        subprocess.run([*before, autodist, *words, "--report", page], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, cwd=folder)
        return page

    digits = report("digits", "train", "digits", "--cluster", "local:2", "--builder", "PS", "--batch", "512",
                    "--steps", "200", "--no-history")
    slow = report("slow", "train", "vgg16-small", "--batch", "128", "--steps", "40", "--encrypt", "off",
                  "--no-history", "--cluster", "{cluster}",
                  before=[ROOT / "tools/testbed", "--hosts", "4", "--rate", "250mbit", "--"])
    placed = report("placed", "place", "generated:cells:1", "--devices", "4", "--budget", "2s")
    return [("report", digits, WIDTH, 1400, "light"), ("report-phone", digits, PHONE, 844, "dark"),
            ("report-testbed", slow, WIDTH, 1250, "light"), ("placement", placed, WIDTH, 950, "light")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--autodist", type=pathlib.Path, default=ROOT / "build/dev/bin/autodist")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "docs/figures")
    wanted = parser.parse_args()
    program = devtools.find_chromium()
    if program is None:
        print("screenshots: no Chromium in PATH. tools/install-packages chromium", file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory(prefix="screenshots-") as folder:
        browser = devtools.Browser(program)
        try:
            for name, page, width, height, theme in pages_of(wanted.autodist.resolve(), pathlib.Path(folder)):
                browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
                browser.open(page, width, height, phone=width == PHONE)
                browser.screenshot(wanted.folder / f"{name}.png")
                print(f"{wanted.folder / name}.png")
        finally:
            browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
