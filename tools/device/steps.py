"""A model on a device, by plain PyTorch and by AutoDist; one line of JSON at the chief.

    steps.py MODEL DEVICE train RANKS BUILDER    losses beside plain PyTorch's on the union of the batches
    steps.py MODEL DEVICE time [HOW …]           a step of one rank, in turns: plain, autodist, graphs, compiled
    steps.py MODEL DEVICE memory HOW             peak memory of five steps: plain, autodist or graphs
    steps.py MODEL DEVICE overlap BUILDER        steps of two ranks on one device beside what they consist of
    steps.py MODEL DEVICE library                sums of one rank by the library that jobs on the device have
    steps.py MODEL DEVICE trace BUILDER FOLDER   a trace of two ranks, and what the simulator needs for its own

MODEL is a key of MODELS (small where DEVICE is cpu); DEVICE is cuda or cpu. Losses are compared in float32 and
without dropout; what is timed is as it is trained: bfloat16 by autocast, with the model's own dropout.
"""

import atexit
import json
import os
import pathlib
import sys
import tempfile
import threading
import time

import torch
from torch import nn
from torch.nn import functional

import autodist

STEPS = 6
RATE = 0.01


class Bottleneck(nn.Module):
    def __init__(self, inner, stride, into):
        super().__init__()
        out = 4 * inner
        self.way = nn.Sequential(
            nn.Conv2d(into, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(),
            nn.Conv2d(inner, inner, 3, stride, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(),
            nn.Conv2d(inner, out, 1, bias=False), nn.BatchNorm2d(out))
        short = nn.Sequential(nn.Conv2d(into, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        self.short = short if stride != 1 or into != out else nn.Identity()

    def forward(self, x):
        return functional.relu(self.way(x) + self.short(x))


def resnet(blocks, width):
    layers = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    into = width
    for stage, count in enumerate(blocks):
        inner = width << stage
        for index in range(count):
            layers.append(Bottleneck(inner, 2 if stage > 0 and index == 0 else 1, into))
            into = 4 * inner
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(into, 1000))


class Transformer(nn.Module):
    """Of PyTorch's own layers."""

    def __init__(self, layers, width, heads, words, dropout):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=dropout, batch_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, words)

    def forward(self, tokens):
        return self.head(self.body(self.embed(tokens)))


class Logits(nn.Module):
    """A model of `transformers`, which returns more than its logits."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model(input_ids=tokens).logits


def published(kind, config, **options):
    import transformers

    return Logits(getattr(transformers, kind)(getattr(transformers, config)(**options)))


def resnet50(small, _):
    return resnet([1, 1], 8) if small else resnet([3, 4, 6, 3], 64)


def gpt_small(small, dropout):
    return Transformer(2, 32, 4, 100, dropout)


def transformer(small, dropout):
    return gpt_small(small, dropout) if small else Transformer(6, 512, 8, 8000, dropout)


def bert_base(small, dropout):
    sizes = {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
             "intermediate_size": 64} if small else {}
    return published("BertForMaskedLM", "BertConfig", hidden_dropout_prob=dropout,
                     attention_probs_dropout_prob=dropout, **sizes)


def gpt2(small, dropout):
    sizes = {"vocab_size": 100, "n_embd": 32, "n_layer": 2, "n_head": 4} if small else {}
    return published("GPT2LMHeadModel", "GPT2Config", resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout,
                     use_cache=False, **sizes)


# How a model is made, and what a batch of its tokens is: rows, length, vocabulary.
MODELS = {
    "resnet50": (resnet50, None),
    "gpt-small": (gpt_small, (8, 16, 100)),
    "transformer": (transformer, (16, 128, 8000)),
    "bert-base": (bert_base, (16, 128, 30000)),
    "gpt2": (gpt2, (4, 512, 50000)),
}


def make(name, device, as_trained=False):
    """Model, loss function and a batch of the step's number, all on the device."""
    small = device == "cpu"
    of_size, tokens = MODELS[name]
    torch.manual_seed(1)
    model = of_size(small, 0.1 if as_trained else 0.0)

    def batch(step):
        torch.manual_seed(100 + step)
        if tokens is None:
            rows, size = (4, 32) if small else (64, 224)
            return torch.randn(rows, 3, size, size), torch.randint(1000, (rows,))
        rows, length, words = (4, 16, 100) if small else tokens
        ids = torch.randint(words, (rows, length + 1))
        return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()

    def loss_fn(model, x, y):
        with torch.autocast(device, dtype=torch.bfloat16, enabled=as_trained):
            return functional.cross_entropy(model(x).flatten(0, -2), y.flatten())

    return model.to(device), loss_fn, lambda step: [each.to(device) for each in batch(step)]


def cluster_of(ranks, more=""):
    return f"nodes:\n  - address: localhost\n    gpus: {list(range(ranks))}\n{more}"


def job_of(device, ranks, **options):
    """Several ranks share the one GPU that CUDA_VISIBLE_DEVICES leaves."""
    os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    with tempfile.NamedTemporaryFile("w", suffix=".yml", delete=False) as file:
        file.write(cluster_of(ranks))
    atexit.register(os.unlink, file.name)
    return autodist.AutoDist(file.name, cpu_only=device == "cpu", seed=1, history=False, **options)


def plain_step(model, loss_fn, optimizer, batch):
    """A step as a loop has it; its loss."""
    optimizer.zero_grad(set_to_none=True)
    loss = loss_fn(model, *batch)
    loss.backward()
    optimizer.step()
    return loss.item()


def plain_losses(name, device):
    model, loss_fn, batch = make(name, device)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    return [plain_step(model, loss_fn, optimizer, batch(step)) for step in range(STEPS)]


def train(name, device, ranks, builder):
    ad = job_of(device, int(ranks), builder=builder)
    model, loss_fn, batch = make(name, device)
    rows = len(batch(0)[0]) // int(ranks)
    losses = []
    with ad.distribute(model, loss_fn, f"sgd:lr={RATE}", [each[:rows] for each in batch(0)]) as step:
        for number in range(STEPS):
            losses.append(float(step(*batch(number))))
    if not ad.is_chief:
        return None
    theirs = plain_losses(name, device)
    return {"difference": max(abs(a - b) / abs(b) for a, b in zip(losses, theirs)), "losses": losses}


def steps_of(name, device, how):
    model, loss_fn, batch = make(name, device, as_trained=True)
    one = batch(0)
    if how in ("autodist", "graphs"):
        os.environ.pop("AUTODIST_CUDA_GRAPHS", None)
        if how == "graphs":
            os.environ["AUTODIST_CUDA_GRAPHS"] = "on"
        job = job_of(device, 1, verify_every=0, builder="AllReduce")
        session = job.distribute(model, loss_fn, f"adamw:lr={1e-4}", one)
        return lambda: float(session(*one))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    run = torch.compile(model) if how == "compiled" else model
    return lambda: plain_step(run, loss_fn, optimizer, one)


def synchronize(device):
    if device != "cpu":
        torch.cuda.synchronize()


def seconds(step, count, device):
    synchronize(device)
    begin = time.perf_counter()
    for _ in range(count):
        step()
    synchronize(device)
    return (time.perf_counter() - begin) / count


def median(values):
    return sorted(values)[len(values) // 2]


def time_steps(name, device, *hows):
    """Autodist before graphs: a job of this process that records leaves later ones recording."""
    made, took = {}, {}
    for how in hows:
        begin = time.perf_counter()
        made[how] = steps_of(name, device, how)
        seconds(made[how], 4, device)
        took[how] = time.perf_counter() - begin
    count = max(3, min(50, int(0.5 / seconds(made[hows[0]], 3, device))))
    rounds = [{how: seconds(step, count, device) for how, step in made.items()} for _ in range(7)]
    ratios = {how: sorted(each[how] / each[hows[0]] for each in rounds) for how in hows[1:]}
    return {"seconds": {how: median([each[how] for each in rounds]) for how in hows}, "ratios": ratios,
            "until_first_steps": took}


def memory(name, device, how):
    step = steps_of(name, device, how)
    for _ in range(5):
        step()
    return {"mb": torch.cuda.max_memory_allocated() / 2**20 if device != "cpu" else 0.0}


def cores_of_threads():
    """Seconds of a core by thread of this process, without the calling one, which runs the loop."""
    used = {}
    for task in pathlib.Path("/proc/self/task").iterdir():
        if int(task.name) == threading.get_native_id():
            continue
        try:
            fields = (task / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        used[task.name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return used


def overlap(name, device, builder):
    """`step` of two ranks, `alone` the same two ranks' steps without an exchange, at the same time."""
    ad = job_of(device, 2, builder=builder, verify_every=0)
    model, loss_fn, batch = make(name, device, as_trained=True)
    rows = len(batch(0)[0]) // 2
    one = [each[:rows] for each in batch(0)]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    with ad.distribute(model, loss_fn, "sgd:lr=1e-4", one) as session:
        def step():
            return session.run_local(*one)

        seconds(step, 5, device)
        before, begin = cores_of_threads(), time.perf_counter()
        times = [seconds(step, 5, device) for _ in range(5)]
        wall = time.perf_counter() - begin
        used = sorted(((cores_of_threads()[task] - spent) / wall for task, spent in before.items()), reverse=True)
        session.synchronize()

    def plain():
        return plain_step(model, loss_fn, optimizer, one)

    seconds(plain, 5, device)  # ends at both ranks about the same time
    alone = [seconds(plain, 5, device) for _ in range(5)]
    seconds(plain, 10, device)  # so that the other one is not alone before it has measured
    if not ad.is_chief:
        return None
    return {"step": median(times), "alone": median(alone), "cores_of_threads": used[:4],
            "parameter_bytes": sum(each.nbytes for each in model.parameters())}


def library(name, device):
    """The backend that Python gives to jobs where the build has none of its own."""
    from autodist import _collectives

    store = torch.distributed.HashStore()
    if device == "cpu":
        if not torch.distributed.is_gloo_available():
            return {"skipped": "this torch has no Gloo"}
        backend, what = _collectives._make_gloo(store, 0, 1, "127.0.0.1", 60000), "Gloo"
    else:
        if not torch.distributed.is_nccl_available():
            return {"skipped": "this torch has no NCCL"}
        backend, what = _collectives._make_nccl(store, 0, 1, "cuda:0", 60000), "NCCL"
    types = [torch.float32, torch.float64, torch.float16, torch.int32, torch.int64]
    for each in types:
        tensor = torch.arange(1000, device=device).to(each)
        before = tensor.clone()
        backend.allreduce([tensor]).wait()
        if not torch.equal(tensor, before):
            raise RuntimeError(f"the sum of one rank's {each} is another")
    large = torch.ones(16 * 2**20, device=device)

    def step():
        backend.allreduce([large]).wait()

    step()
    return {"library": what, "types": [str(each).removeprefix("torch.") for each in types],
            "mb": large.numel() * large.element_size() // 2**20, "seconds": seconds(step, 10, device)}


def trace(name, device, builder, folder):
    folder = pathlib.Path(folder)
    ad = job_of(device, 2, builder=builder, trace=True, trace_steps=STEPS, verify_every=0)
    model, loss_fn, batch = make(name, device)
    rows = len(batch(0)[0]) // 2
    with ad.distribute(model, loss_fn, f"sgd:lr={RATE}", [each[:rows] for each in batch(0)]) as session:
        batches = [batch(step) for step in range(STEPS)]
        for each in batches:
            session(*each)
        numbers = iter(batches)
        step = seconds(lambda: session(*next(numbers)), STEPS, device)
        if ad.is_chief:
            session.write_trace(folder / f"{name}.trace.json")
            session.graph.save(folder / f"{name}.adg")
    if not ad.is_chief:
        return None
    kind = "" if device == "cpu" else f"    devices: {{kind: {torch.cuda.get_device_name(0)}}}\n"
    (folder / f"{name}.yml").write_text(cluster_of(2, kind))
    return {"step": step, "graph": str(folder / f"{name}.adg"), "cluster": str(folder / f"{name}.yml")}


def main():
    name, device, action, *rest = sys.argv[1:]
    actions = {"train": train, "time": time_steps, "memory": memory, "overlap": overlap,
               "library": library, "trace": trace}
    try:
        result = actions[action](name, device, *rest)
    except ImportError as error:  # in every rank
        result = {"skipped": str(error)}
    if result is not None:
        print("DEVICE " + json.dumps(result), flush=True)


main()
