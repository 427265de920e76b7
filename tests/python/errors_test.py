"""What goes wrong is an exception of one line with its code; a user's own error stays as it was."""

import os
import tempfile

import comparing

comparing.skip_without_torch()

import autodist
import torch
from torch import nn


def raised(kind, text, function, *arguments, **keywords):
    try:
        function(*arguments, **keywords)
    except kind as error:
        line = str(error)
        assert text in line, f"'{text}' is not in: {line}"
        assert isinstance(error, autodist.Error) == (kind is not KeyError), line
        if isinstance(error, autodist.Error):
            assert "\n" not in line and error.code == type(error).code > 1, (line, error.code)
        return
    raise AssertionError(f"{kind.__name__} with '{text}' was not raised")


def mse(model, x, y):
    return nn.functional.mse_loss(model(x), y)


def of_capture():
    model = nn.Linear(4, 1)
    batch = (torch.randn(6, 4), torch.randn(6, 1))
    usage = autodist.UsageError
    assert issubclass(usage, ValueError) and usage.code == 2

    def reads(model, x, y):
        loss = mse(model, x, y)
        print(loss.item())
        return loss

    raised(usage, "_local_scalar_dense", autodist.capture, model, reads, batch)

    def catches(model, x, y):
        try:
            return mse(model, x, y) * (2.0 if x.sum().item() > 0 else 1.0)
        except RuntimeError:
            return mse(model, x, y)

    raised(usage, "_local_scalar_dense", autodist.capture, model, catches, batch)
    raised(usage, "size depends on data", autodist.capture, model,
           lambda m, x, y: m(x[x[:, 0] > 0]).sum(), batch)

    def outside(model, x, y):
        weight = torch.from_numpy(x.detach().numpy().copy()).mean()
        return mse(model, x, y) * weight

    raised(usage, "cannot be replayed", autodist.capture, model, outside, batch)
    raised(usage, "a tensor with the loss expected", autodist.capture, model,
           lambda m, x, y: "no loss", batch)
    raised(usage, "not a scalar", autodist.capture, model, lambda m, x, y: m(x), batch)
    raised(usage, "type int", autodist.capture, model, mse, (batch[0], 3))
    raised(usage, "torch.nn.Module", autodist.capture, "model", mse, batch)

    def own_mistake(model, x, y):
        return {}["missing"]

    raised(KeyError, "missing", autodist.capture, model, own_mistake, batch)

    class Hidden(nn.Module):  # a parameter that no module knows
        def __init__(self):
            super().__init__()
            self.known = nn.Linear(4, 1)
            self.hidden = [nn.Parameter(torch.randn(4))]

        def forward(self, x):
            return self.known(x * self.hidden[0])

    raised(usage, "not among the step's parameters", autodist.capture, Hidden(), mse, batch)
    # After all of that the model is as before, and can be captured.
    assert model.weight.grad is None
    graph = autodist.capture(model, mse, batch)
    assert [each.name for each in graph.variables] == ["weight", "bias"]
    raised(usage, "Did you mean 'weight'?", graph.variable, "wieght")


def of_files():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "cluster.yml")
        with open(path, "w", encoding="utf-8") as file:
            file.write("nodes:\n  - address: 10.0.0.1\n    gpu: [0]\n")
        raised(autodist.UsageError, "gpu", autodist.Cluster, path)
        missing = os.path.join(folder, "missing.adg")
        raised(autodist.UsageError, missing, autodist.Graph.load, missing)
        raised(autodist.UsageError, "the bytes", autodist.Strategy.deserialize, b"\xff\xff\xff")


def of_sessions():
    model = nn.Linear(4, 1)
    batch = (torch.randn(6, 4), torch.randn(6, 1))
    raised(autodist.UsageError, "Nearest: 'PartitionedPS'.",
           lambda: autodist.AutoDist(builder="PartitonedPS").distribute(model, mse, "sgd", batch))
    raised(autodist.UsageError, "auto, on or off expected", autodist.AutoDist, "local:1",
           encrypt="yes")
    raised(autodist.UsageError, "silence_limit", autodist.AutoDist, "local:1", silence_limit=1)
    raised(autodist.UsageError, "trace_steps", autodist.AutoDist, "local:1", trace_steps=-1)
    raised(autodist.UsageError, "Did you mean 'lr'?",
           lambda: autodist.AutoDist().distribute(model, mse, "sgd:lrr=1", batch))
    ad = autodist.AutoDist()
    with ad.distribute(model, mse, "sgd:lr=0.1", batch) as step:
        raised(autodist.CheckpointError, "nowhere", step.load, "nowhere")
        first = step(*batch)
        assert step(*batch) < first
        raised(autodist.UsageError, "1 tensors, the step was captured with 2", step.run, batch[0])
        raised(autodist.UsageError, "torch.float64", step.run, batch[0].double(), batch[1])
        raised(autodist.UsageError, "under way", step.load, "nowhere")
        assert step(*batch) < first  # none of it has ended the job
    raised(autodist.UsageError, "ended", step.run, *batch)
    raised(autodist.UsageError, "its session already", ad.distribute, model, mse, "sgd", batch)
    changed = torch.optim.SGD([model.weight, model.bias], lr=0.1)
    with autodist.AutoDist().distribute(model, mse, changed, batch) as step:
        changed.load_state_dict(changed.state_dict())
        step(*batch)
        changed.param_groups[0]["momentum"] = 0.5
        raised(autodist.UsageError, "momentum_buffer", step.run_local, *batch)
        changed.param_groups[0]["momentum"] = 0
        changed.add_param_group({"params": [nn.Parameter(torch.randn(1))]})
        raised(autodist.UsageError, "parameter groups hold others", step.run, *batch)
    weight = [1.0]

    def weighted(model, x, y):
        return mse(model, x, y) * weight[0]

    with autodist.AutoDist(verify_every=1).distribute(model, weighted, "sgd:lr=0.1", batch) as step:
        step(*batch)
        weight[0] = 2.0
        raised(autodist.UsageError, "no longer does what was captured", step.run, *batch)
    step = autodist.AutoDist().distribute(model, mse, "sgd:lr=0.1", batch)
    raised(autodist.Error, "the loss of rank 0 is nan", step.run, batch[0] * float("nan"), batch[1])
    step.close()
    raised(autodist.UsageError, "closed", step.run, *batch)


of_capture()
of_files()
of_sessions()
print("errors: all as they should be")
