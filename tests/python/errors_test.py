"""What goes wrong is an exception of one line with its code; a user's own error stays as it was."""

import importlib.util
import os
import subprocess
import sys
import tempfile

import comparing
from comparing import raised

comparing.skip_without_torch()

import autodist
import numpy
import torch
from torch import nn

from cases import mse


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

    def deep(model, x, y):
        return mse(model, torch.stack([each for each in x if each.sum().item() > 0]), y)

    raised(usage, "errors_test.py:", autodist.capture, model, deep, batch)
    raised(usage, "each for each in x if each.sum()", autodist.capture, model, deep, batch)

    class ReadsGradients(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return x * 2

        @staticmethod
        def backward(context, gradient):
            return gradient * 2 if gradient.norm() < 1 else gradient / gradient.norm()

    raised(usage, "in the backward pass, a Boolean", autodist.capture, model,
           lambda model, x, y: ReadsGradients.apply(mse(model, x, y)), batch)

    def outside(model, x, y):
        weight = torch.from_numpy(x.detach().numpy().copy()).mean()
        return mse(model, x, y) * weight

    raised(usage, "cannot be replayed", autodist.capture, model, outside, batch)
    raised(usage, "a tensor with the loss expected", autodist.capture, model,
           lambda m, x, y: "no loss", batch)
    raised(usage, "not a scalar", autodist.capture, model, lambda m, x, y: m(x), batch)
    raised(usage, "type int", autodist.capture, model, mse, (batch[0], 3))
    raised(usage, "torch.nn.Module", autodist.capture, "model", mse, batch)
    raised(usage, "-> scalar loss expected, got int", autodist.capture, model, 3, batch)
    for loss in (nn.MSELoss(), nn.MSELoss, nn.functional.mse_loss):
        raised(usage, "takes results and targets; a function (model, *batch) expected",
               autodist.capture, model, loss, batch)
    raised(usage, "example_batch: a DataLoader, which gives batches", autodist.capture, model, mse,
           torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*batch), 2))

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


def of_arguments():
    """What would be left without effect, and what is no such number."""
    search = ": of the search, and "
    for text, given in (
            ("builder='PS' and strategy_file='a': each chooses the strategy. Give one of them.",
             {"builder": "PS", "strategy_file": "a"}),
            ("builder='auto' and plans='b'", {"builder": "auto", "plans": b"b"}),
            ("strategy_file='a' and plans='b'", {"strategy_file": "a", "plans": "b"}),
            (f"trials=3{search}builder='PS' chooses without one. Leave one out.",
             {"builder": "PS", "trials": 3}),
            (f"budget='10s'{search}strategy_file='a'", {"strategy_file": "a", "budget": "10s"}),
            (f"search_seed=0{search}plans='b'", {"plans": "b", "search_seed": 0}),
            ("trace_steps=5: of a trace, and this job keeps none.", {"trace_steps": 5}),
            ("accumulate=2.0: a whole number of 1 or more expected.", {"accumulate": 2.0}),
            ("accumulate='2': a whole", {"accumulate": "2"}),
            ("accumulate=True: a whole", {"accumulate": True}),
            ("accumulate=0: a whole", {"accumulate": 0}),
            ("seed=-1: a whole number of 0 or more", {"seed": -1}),
            (f"seed={2**64}: a whole number below 2**64", {"seed": 2**64}),
            ("trials=True: 'any' or a whole number of 0 or more", {"trials": True}),
            ("verify_every=-1: a whole", {"verify_every": -1}),
            ("budget: 'soon', a time (10s, 2m, 500ms) or a number", {"budget": "soon"}),
            ("budget=40: a time ('10s', '2m') or a number of simulations ('40') expected, as text.",
             {"budget": 40}),
            ("on_nonfinite: 'skip', stop or ignore expected", {"on_nonfinite": "skip"}),
            ("on_nonfinite=1: 'stop' or 'ignore' expected", {"on_nonfinite": 1}),
            ("on_nonfinite (--on-nonfinite) beside loss_scaling (--loss-scale): ",
             {"on_nonfinite": "ignore", "loss_scaling": 8}),
            ("encrypt=True: 'auto', 'on' or 'off' expected", {"encrypt": True}),
            ("join_limit=0: a number of seconds above 0", {"join_limit": 0}),
            ("stall_limit=nan: a number", {"stall_limit": float("nan")}),
            ("stall_limit='60': a number", {"stall_limit": "60"}),
            ("silence_limit=inf: a number", {"silence_limit": float("inf")})):
        raised(autodist.UsageError, text, autodist.AutoDist, **given)
    rule = "update_rules: 'a': "
    for text, given in (
            ("cluster=2: a path expected.", {"cluster": 2}),
            ("log=3: a path expected.", {"log": 3}),
            ("strategy_file=3: a path expected.", {"strategy_file": 3}),
            ("initial_weights (--init) nowhere: there is no such file.", {"initial_weights": "nowhere"}),
            ("cpu_only='yes': True or False expected.", {"cpu_only": "yes"}),
            ("history='off': True or False expected.", {"history": "off"}),
            ("trace='t.json': True or False expected. Session.write_trace(path)", {"trace": "t.json"}),
            ("builders=[1]: a dict of functions by name expected.", {"builders": [1]}),
            ("update_rules=[1]: a dict of (states, function) by name", {"update_rules": [1]}),
            (rule + "a pair expected, how many states it keeps and the function, got 3.",
             {"update_rules": {"a": 3}}),
            (rule + "states='x': a whole number", {"update_rules": {"a": ("x", print)}}),
            ("loss scaling 'True': ", {"loss_scaling": True})):
        raised(autodist.UsageError, text, autodist.AutoDist, **given)
    raised(autodist.UsageError, "density is of codec='topk', and codec='' has none.",
           autodist.AllReduceSynchronizer, density=0.1)
    raised(autodist.UsageError, "error_feedback is of a codec", autodist.PSSynchronizer, "a",
           error_feedback=True)
    # What turns off what is not there, and what Python takes for a whole number.
    autodist.AutoDist(builder="PS", history=False, counted_trials=False, trials=0, seed=2**64 - 1)
    autodist.AutoDist(builder="auto", budget="4", trials=numpy.int64(2), accumulate=numpy.int32(1))
    autodist.AutoDist(builder="PS", builders=[], update_rules=[], on_nonfinite="stop", loss_scaling=8)
    autodist.AutoDist(builder="PS", cpu_only=None, history=None, library=None, progress=None, trace=None,
                      snapshots=None, measure=None, counted_trials=None)
    batch = (torch.randn(6, 4), torch.randn(6, 1))
    step = autodist.TrainingStep(nn.Linear(4, 1), mse, "sgd", batch)
    raised(autodist.UsageError, "trials=2: of a job of one step",
           autodist.AutoDist(trials=2).distribute_steps, only=step)
    model = nn.ModuleDict({"body": nn.Linear(4, 3), "head": nn.Linear(3, 1)})
    unknown = "the model has no parameter and no module with parameters of this name. "

    def own(graph, cluster):
        return None

    for text, optimizer, given in (
            ("trains='head': of a step that trains, and one without an", None, {"trains": "head"}),
            ("clip=1.0: of a step that trains, and one without an", None, {"clip": 1.0}),
            (f"trains='heda': {unknown}Did you mean 'head'?", "sgd", {"trains": "heda"}),
            (f"trains='head.wieght': {unknown}Did you mean 'head.weight'?", torch.optim.Adam,
             {"trains": ["body", "head.wieght"]}),
            (f"trains='nothing': {unknown}Name some of its own.", "sgd", {"trains": "nothing"}),
            ("trains: names of parameters or modules expected, got Parameter", "sgd",
             {"trains": model["head"].parameters()}),
            ("builder: a name or one of autodist.strategy expected, got function", "sgd",
             {"builder": own})):
        raised(autodist.UsageError, text, autodist.TrainingStep, model, mse, optimizer, batch,
               **given)


def of_programs():
    if importlib.util.find_spec("ray") is None:
        done = subprocess.run([sys.executable, "-m", "autodist.ray"], stderr=subprocess.PIPE,
                              text=True)
        assert done.returncode == 3 and "Traceback" not in done.stderr, done
        assert "autodist: ray: this Python has no Ray. pip install ray." in done.stderr, done


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

    class Complex(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.complex(torch.ones(4, 1), torch.ones(4, 1)))

        def forward(self, x):
            return (x.to(self.weight.dtype) @ self.weight).abs()

    raised(autodist.UsageError, "'weight' has elements of c64, which no rule updates",
           lambda: autodist.AutoDist().distribute(Complex(), mse, "sgd:lr=0.1", batch))
    ad = autodist.AutoDist()
    with ad.distribute(model, mse, "sgd:lr=0.1", batch) as step:
        raised(autodist.CheckpointError, "nowhere", step.load, "nowhere")
        assert [each.number for each in step.epochs([], 3.0, name="whole")] == [0, 1, 2]
        assert next(iter(step.epochs([], float("inf"), name="endless"))).number == 0
        raised(autodist.UsageError, "epochs=2.5: a whole number", step.epochs, [], 2.5)
        raised(autodist.UsageError, "this job keeps no trace. Make it", step.write_trace, "nowhere")
        raised(autodist.UsageError, "directory=None: a path expected.", step.save, None)
        raised(autodist.UsageError, "names='loss': a list of names", step.run_and_fetch, "loss", *batch)
        raised(autodist.UsageError, "batch=-1: a whole number of 0 or more", step.rows_of, -1)
        raised(autodist.UsageError, "plan=3: a builder's name or a Strategy", step.change_plan, 3)
        raised(autodist.UsageError, "loader=3: a DataLoader", step.epochs, 3)
        raised(autodist.UsageError, "epochs=-1: a whole number of 0 or more", step.epochs, [batch], -1)
        first = step(*batch)
        assert step(*batch) < first
        raised(autodist.UsageError, "1 tensors, the step was captured with 2", step.run, batch[0])
        raised(autodist.UsageError, "torch.float64", step.run, batch[0].double(), batch[1])
        raised(autodist.UsageError, "under way", step.load, "nowhere")
        raised(KeyError, "missing", step.evaluate, lambda model: {}["missing"])
        raised((KeyError, autodist.UsageError), "missing", step.export_torchscript, "nowhere.pt",
               lambda model, x, y: {}["missing"])
        # Nor do they take their parameters away from the session.
        raised(autodist.UsageError, "copy_", setattr, model, "weight",
               nn.Parameter(torch.zeros(1, 4)))
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


def of_a_start_that_fails():
    """A checkpoint without the state that this optimizer needs: at the first step, and whatever is asked then."""
    batch = (torch.randn(6, 4), torch.randn(6, 1))
    lacks = (autodist.CheckpointError, "optimizer state 'weight.exp_avg' is missing among 2")
    with tempfile.TemporaryDirectory() as folder:
        with autodist.AutoDist(builder="PS").distribute(nn.Linear(4, 1), mse, "sgd:lr=0.1,momentum=0.9", batch) as step:
            step(*batch)
            step.save(folder)

        def adam(model):
            step = autodist.AutoDist(builder="PS").distribute(model, mse, "adam:lr=0.1", batch)
            assert step.load(folder) == 1
            return step

        def in_a_block():
            with adam(nn.Linear(4, 1)) as step:
                step(*batch)

        raised(*lacks, in_a_block)
        model = nn.Linear(4, 1)
        step = adam(model)
        raised(*lacks, step.run, *batch)
        raised(*lacks, step.run, *batch)
        assert torch.isfinite(model.weight.sum())
        raised(*lacks, step.synchronize)
        raised(*lacks, step.finish)
        step.close()


of_capture()
of_a_start_that_fails()
of_files()
of_arguments()
of_programs()
of_sessions()
print("errors: all as they should be")
