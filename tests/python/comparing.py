"""What the tests of jobs share: running a script as a user does, and comparing numbers."""

import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.dirname(HERE))  # for the tests, too
import running  # noqa: E402


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
    return running.run([sys.executable, os.path.join(HERE, script), *arguments], seconds=None,
                       env={**os.environ, **environment})


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


def raised(kind, words, function, *arguments, **keywords):
    """Expects an error of the kind, or of one of several, that holds the words, a text or several; one of
    AutoDist's has one line, and its class' code."""
    from autodist import Error

    expected = [words] if isinstance(words, str) else words
    try:
        function(*arguments, **keywords)
    except kind as error:
        said = str(error)
        assert all(each in said for each in expected), (expected, said)
        if isinstance(error, Error):
            assert "\n" not in said and error.code == type(error).code > 1, (said, error.code)
        return
    raise AssertionError(f"no {kind} about {expected}")


def refused(words, function, *arguments, **keywords):
    """Expects a UsageError that holds the words."""
    from autodist import UsageError

    raised(UsageError, words, function, *arguments, **keywords)


def plain_step(model, loss_fn, optimizer, *batch):
    """A step as a loop of plain PyTorch has it; its loss, a number. Without loss_fn the model gives it."""
    optimizer.zero_grad()
    loss = model(*batch) if loss_fn is None else loss_fn(model, *batch)
    loss.backward()
    optimizer.step()
    return loss.item()
