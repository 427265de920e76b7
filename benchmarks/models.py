"""The models of the synchronisation benchmark, the same for every system that is compared.

AutoDist reads them as TorchScript files, PyTorch's DistributedDataParallel takes the modules: layers,
first values and samples are equal, so that the parameters after some steps must be, too.

Compute may be imitated: after each layer with parameters a pause stands for the layer's time, in the
forward pass once and in the backward pass twice, shared out by the layers' multiplications. The
layers then compute on very few samples. It takes no core, so that more hosts than cores can overlap.
"""

import math
import time

import torch
from torch import nn
from torch.nn import functional as F

FORWARD_SHARE = 1 / 3  # of a layer's time


def declare_pause():
    """The operator that AutoDist's benchmark has in C++, for Python: a pause that autograd sees."""
    library = torch.library.Library("autodist_bench", "DEF")
    library.define("pause(Tensor x, float forward, float backward) -> Tensor")

    class Pause(torch.autograd.Function):
        @staticmethod
        def forward(context, x, seconds, backward):
            context.seconds = backward
            time.sleep(seconds)
            return x.clone()

        @staticmethod
        def backward(context, gradient):
            time.sleep(context.seconds)
            return gradient.clone(), None, None

    library.impl("pause", Pause.apply, "Autograd")
    library.impl("pause", lambda x, seconds, backward: x.clone(), "CPU")
    return library  # the operator lives as long


LIBRARY = declare_pause()


class Paused(nn.Module):
    """A layer, and the time that it stands for."""

    def __init__(self, layer, share: float):
        super().__init__()
        self.layer = layer
        self.share = share
        self.forward_seconds = 0.0
        self.backward_seconds = 0.0

    def forward(self, x):
        x = self.layer(x)
        if self.forward_seconds > 0.0:
            x = torch.ops.autodist_bench.pause(x, self.forward_seconds, self.backward_seconds)
        return x


def conv(channels, out, side, kernel=3, stride=1, bias=True):
    layer = nn.Conv2d(channels, out, kernel, stride=stride, padding=kernel // 2, bias=bias)
    return Paused(layer, channels * out * kernel**2 * (side / stride) ** 2)


def linear(width, out, times=1):
    return Paused(nn.Linear(width, out), width * out * times)


class VggLike(nn.Module):
    """Ten convolutions and three wide linear layers; 33.6 MB, most of it needed last."""

    inputs = ["float32:3,32,32", "int64::100"]

    def __init__(self, narrow=1):
        super().__init__()
        layers, channels, side = [], 3, 32
        for out in (32, 32, 0, 64, 64, 0, 128, 128, 128, 0, 256, 256, 256, 0):
            if out == 0:
                layers.append(nn.MaxPool2d(2))
                side //= 2
                continue
            layers += [conv(channels, out // narrow, side), nn.ReLU()]
            channels = out // narrow
        self.features = nn.Sequential(*layers)
        wide = 2048 // narrow
        self.classifier = nn.Sequential(linear(4 * channels, wide), nn.ReLU(), linear(wide, wide),
                                        nn.ReLU(), linear(wide, 100))

    def forward(self, images, labels):
        return F.cross_entropy(self.classifier(self.features(images).flatten(1)), labels)


class Block(nn.Module):
    def __init__(self, channels, out, side, stride):
        super().__init__()
        self.conv1 = conv(channels, out, side, stride=stride, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = conv(out, out, side // stride, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.shortcut = nn.Sequential()
        if stride != 1:
            self.shortcut = nn.Sequential(conv(channels, out, side, 1, stride, bias=False),
                                          nn.BatchNorm2d(out))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


class ResNet18Like(nn.Module):
    """ResNet-18's blocks on 32x32 images; 45 MB in 62 tensors, large ones late."""

    inputs = ["float32:3,32,32", "int64::100"]

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(conv(3, 64, 32, bias=False), nn.BatchNorm2d(64), nn.ReLU())
        blocks, channels, side = [], 64, 32
        for out in (64, 128, 256, 512):
            for stride in (1 if out == 64 else 2, 1):
                blocks.append(Block(channels, out, side, stride))
                channels, side = out, side // stride
        self.blocks = nn.Sequential(*blocks)
        self.fc = linear(512, 100)

    def forward(self, images, labels):
        x = self.blocks(self.stem(images)).mean((2, 3))
        return F.cross_entropy(self.fc(x), labels)


class EncoderLayer(nn.Module):
    def __init__(self, width: int, heads: int, tokens: int):
        super().__init__()
        self.heads = heads
        self.mixed = linear(width, 3 * width, tokens)
        self.out = linear(width, width, tokens)
        self.norm1 = nn.LayerNorm(width)
        self.wide = linear(width, 4 * width, tokens)
        self.narrow = linear(4 * width, width, tokens)
        self.norm2 = nn.LayerNorm(width)

    def forward(self, x):
        samples, tokens, width = x.size(0), x.size(1), x.size(2)
        parts = self.mixed(x).reshape(samples, tokens, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        scores = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(width // self.heads), -1)
        y = (scores @ v).transpose(1, 2).reshape(samples, tokens, width)
        x = self.norm1(x + self.out(y))
        return self.norm2(x + self.narrow(F.gelu(self.wide(x))))


class BertSmall(nn.Module):
    """Four encoder layers of width 256; the table of 8,192 tokens scores them, too: needed first and
    complete last, 40 % of the 21 MB."""

    inputs = ["int64:64:8192", "int64:64:8192"]

    def __init__(self, vocabulary=8192, tokens=64, width=256, heads=4, layers=4):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.places = nn.Parameter(torch.zeros(tokens, width))
        nn.init.normal_(self.words.weight, 0, 0.02)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.Sequential(*[EncoderLayer(width, heads, tokens) for _ in range(layers)])

    def forward(self, ids, hidden):
        x = self.layers(self.norm(self.words(ids) + self.places))
        return F.cross_entropy((x @ self.words.weight.t()).flatten(0, 1), hidden.flatten())


class BertTiny(BertSmall):
    """Three layers of width 128 and 1,024 tokens; 2.9 MB."""

    inputs = ["int64:16:1024", "int64:16:1024"]

    def __init__(self):
        super().__init__(vocabulary=1024, tokens=16, width=128, heads=4, layers=3)


class MlpTiny(nn.Module):
    """Three linear layers; 3.5 MB."""

    inputs = ["float32:256", "int64::100"]

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(linear(256, 768), nn.ReLU(), linear(768, 768), nn.ReLU(),
                                    linear(768, 100))

    def forward(self, x, labels):
        return F.cross_entropy(self.layers(x), labels)


class Flat(nn.Module):
    """One tensor, of 64 MB or 4 KB, and next to no compute: an all-reduce alone."""

    inputs = ["float32:1"]

    def __init__(self, parameters=16 << 20):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(parameters))

    def forward(self, x):
        return (self.weight * x.mean()).sum()


class Ncf(nn.Module):
    """NeuMF with 80,000 rows of embeddings, 20.5 MB; the perceptron is small."""

    inputs = ["int64::60000", "int64::20000", "float32:1"]

    def __init__(self, sparse=False):
        super().__init__()
        self.mf_user = nn.Embedding(60000, 32, sparse=sparse)
        self.mf_item = nn.Embedding(20000, 32, sparse=sparse)
        self.mlp_user = nn.Embedding(60000, 32, sparse=sparse)
        self.mlp_item = nn.Embedding(20000, 32, sparse=sparse)
        self.mlp = nn.Sequential(linear(64, 64), nn.ReLU(), linear(64, 32), nn.ReLU())
        self.final = linear(64, 1)

    def forward(self, users, items, liked):
        product = self.mf_user(users) * self.mf_item(items)
        x = self.mlp(torch.cat([self.mlp_user(users), self.mlp_item(items)], 1))
        scores = self.final(torch.cat([product, x], 1))
        return F.binary_cross_entropy_with_logits(scores, torch.sigmoid(liked))


MODELS = {"vgg-like": VggLike, "resnet18-like": ResNet18Like, "bert-small": BertSmall, "ncf": Ncf,
          "vgg-tiny": lambda: VggLike(narrow=4), "bert-tiny": BertTiny, "mlp-tiny": MlpTiny,
          "ncf-sparse": lambda: Ncf(sparse=True), "flat": Flat, "flat-4k": lambda: Flat(1 << 10)}


def inputs_of(name):
    family = {"vgg-tiny": VggLike, "ncf-sparse": Ncf, "flat-4k": Flat}.get(name, MODELS[name])
    return family.inputs


def build(name, imitated_seconds=0.0):
    """The module with its first values; `imitated_seconds` of pauses per step."""
    torch.manual_seed(0)
    model = MODELS[name]()
    paused = [module for module in model.modules() if isinstance(module, Paused)]
    total = sum(module.share for module in paused)
    for module in paused:
        seconds = imitated_seconds * module.share / total
        module.forward_seconds = seconds * FORWARD_SHARE
        module.backward_seconds = seconds * (1 - FORWARD_SHARE)
    return model


def export(name, path, imitated_seconds=0.0):
    torch.jit.script(build(name, imitated_seconds)).save(str(path))


def samples(name, rows):
    """Those that `autodist bench sync-rank` draws: the first `rows` of sixteen batches."""
    generator = torch.Generator().manual_seed(0)
    batch = []
    for spec in inputs_of(name):
        kind, sizes, *below = spec.split(":")
        shape = [16 * rows] + [int(size) for size in sizes.split(",") if size]
        if kind == "int64":
            batch.append(torch.randint(0, int(below[0]), shape, generator=generator))
        else:
            batch.append(torch.randn(shape, generator=generator))
    return [each[:rows].contiguous() for each in batch]


def parameter_count(model):
    return sum(parameter.numel() for parameter in model.parameters())


def first_parameter_bytes(name):
    """Of the variable whose gradient is complete last and which the next step needs first."""
    model = MODELS[name]()
    parameters = dict(model.named_parameters())
    tables = ("mlp_user.weight", "words.weight")
    known = [parameters[table] for table in tables if table in parameters]
    first = known[0] if known else next(iter(parameters.values()))
    return 4 * first.numel()
