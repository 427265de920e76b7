"""What the tests of jobs share: running a script as a user does, and comparing numbers."""

import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.dirname(HERE))
from ports import free_port  # noqa: E402, F401: for the tests


def skip_without_torch():
    try:
        import torch  # noqa: F401
    except ImportError as error:
        print(f"SKIPPED: {error}")
        sys.exit(77)


def is_left_out(builder):
    """Whether it needs all-reduces by a library, and there are none."""
    from autodist import _autodist

    if "library" not in builder or _autodist.has_gloo():
        return False
    print(f"LEFT OUT: {builder}: this torch has no Gloo")
    return True


def run(script, *arguments, **environment):
    """The finished process, with its output; it must end well."""
    command = [sys.executable, script if os.path.isabs(script) else os.path.join(HERE, script)]
    done = subprocess.run(
        [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, **environment})
    if done.returncode != 0:
        sys.exit(f"{command + list(arguments)}: exit code {done.returncode}\n"
                 f"{done.stdout}{done.stderr}")
    return done


def result_of(script, *arguments):
    """What the script writes to the file that is its last argument."""
    import torch

    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.pt")
        run(script, *arguments, out)
        return torch.load(out)


def largest_difference(ours, theirs):
    """Over all tensors: largest |a - b| over largest |b|, per tensor."""
    assert ours.keys() == theirs.keys(), (sorted(ours), sorted(theirs))
    worst = 0.0
    for name, expected in theirs.items():
        scale = max(expected.abs().max().item(), 1e-3)
        worst = max(worst, (ours[name] - expected).abs().max().item() / scale)
    return worst


def raised(kind, text, function, *arguments):
    """Expects that it raises an error of the kind, whose words hold the text."""
    try:
        function(*arguments)
    except kind as error:
        assert text in str(error), error
        return
    raise AssertionError(f"no {kind.__name__} about '{text}'")


def refused(words, function, *arguments, **keywords):
    """Expects a UsageError of one line that holds the words, a text or several."""
    from autodist import UsageError

    expected = [words] if isinstance(words, str) else words
    try:
        function(*arguments, **keywords)
    except UsageError as error:
        assert all(each in str(error) for each in expected) and "\n" not in str(error), error
        return
    raise AssertionError(f"{words}: not refused")
