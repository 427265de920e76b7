"""Models, losses and data of the tests: plain PyTorch, nothing of AutoDist's. All in float64."""

import torch
from torch import nn
from torch.nn import functional

STEPS = 10
ROWS = 12  # of the whole batch


class Block(nn.Module):
    def __init__(self, width_in, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(width_in, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = None
        if stride != 1 or width_in != width:
            self.downsample = nn.Sequential(
                nn.Conv2d(width_in, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        x = functional.relu(self.bn1(self.conv1(x)), inplace=True)
        return functional.relu(self.bn2(self.conv2(x)) + shortcut)


class ResNet18(nn.Module):
    """ResNet-18 with its usual layers, narrow, for small images."""

    def __init__(self, width=4, classes=5):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        blocks = []
        for stage in range(4):
            wide = width * 2**stage
            first = Block(wide if stage == 0 else wide // 2, wide, 1 if stage == 0 else 2)
            blocks.append(nn.Sequential(first, Block(wide, wide, 1)))
        self.layer1, self.layer2, self.layer3, self.layer4 = blocks
        self.fc = nn.Linear(width * 8, classes)

    def forward(self, x):
        x = functional.relu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(functional.adaptive_avg_pool2d(x, 1).flatten(1))


class Encoder(nn.Module):
    """A transformer encoder that predicts tokens; its output layer is the embedding's."""

    def __init__(self, tokens=23, width=16, length=7):
        super().__init__()
        self.embed = nn.Embedding(tokens, width)
        self.position = nn.Parameter(0.1 * torch.randn(length, width))
        layer = nn.TransformerEncoderLayer(width, 4, 32, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(width, tokens, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("mask", torch.triu(torch.full((length, length), float("-inf")), 1))

    def forward(self, tokens):
        x = self.embed(tokens) + self.position
        return self.head(self.layers(x, mask=self.mask))


class Masked(nn.Module):
    """Leaves a mask out where all of it is set, and a layer where the first number's mean is low."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.norm = nn.BatchNorm1d(8)
        self.second = nn.Linear(8, 8)
        self.last = nn.Linear(8, 3)

    def forward(self, x, mask):
        if not mask.all():
            x = x * mask
        hidden = self.norm(self.first(x))
        if x[:, 0].mean() > 0:
            hidden = torch.tanh(self.second(hidden))
        return self.last(hidden)


def masked_error(model, x, mask, y):
    return functional.mse_loss(model(x, mask), y)


def masked_batches():
    """Each rank's half goes another way than the other's, and than its own before."""
    batches = []
    for step in range(STEPS):
        x, mask = torch.randn(ROWS, 6), torch.ones(ROWS, 6, dtype=torch.bool)
        for rank, rows in enumerate((slice(0, ROWS // 2), slice(ROWS // 2, ROWS))):
            x[rows, 0] += 2 if (step + rank) % 2 == 0 else -2
            mask[rows][0, 3] = (step // 2 + rank) % 2 == 0
        batches.append((x, mask, torch.randn(ROWS, 3)))
    return batches


class Taste(nn.Module):
    """Users and things, embedded."""

    def __init__(self, sparse, users=31, things=17, width=6):
        super().__init__()
        self.users = nn.Embedding(users, width, sparse=sparse)
        self.things = nn.Embedding(things, width, sparse=sparse)
        self.mlp = nn.Sequential(nn.Linear(2 * width, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, user, thing):
        return self.mlp(torch.cat([self.users(user), self.things(thing)], 1)).squeeze(1)


def small(norm=False):
    """Two layers, with batch norm between them where it is asked for."""
    torch.manual_seed(4)
    middle = [nn.BatchNorm1d(8)] if norm else []
    return nn.Sequential(nn.Linear(4, 8), *middle, nn.Tanh(), nn.Linear(8, 2)).double()


def batch(number):
    """Ten rows for it, by their number."""
    generator = torch.Generator().manual_seed(number)
    x = torch.randn(10, 4, generator=generator).double()
    return x, torch.stack([x.sum(1), x.prod(1)], 1)


def mse(model, x, y):
    return functional.mse_loss(model(x), y)


def classify(model, x, y):
    return functional.cross_entropy(model(x), y)


def predict(model, tokens, following):
    return functional.cross_entropy(model(tokens).flatten(0, 1), following.flatten())


def rate(model, user, thing, rating):
    return functional.mse_loss(model(user, thing), rating)


def make(name):
    """(model, loss function, optimizer's text, torch's optimizer, batches) of a case."""
    torch.manual_seed(7)
    torch.set_default_dtype(torch.float64)
    if name == "resnet":
        return (ResNet18(), classify, "sgd:lr=0.02,momentum=0.9",
                lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9),
                [(torch.randn(ROWS, 3, 12, 12), torch.randint(5, (ROWS,))) for _ in range(STEPS)])
    if name == "encoder":
        return (Encoder(), predict, "adam:lr=1e-3", lambda p: torch.optim.Adam(p, lr=1e-3),
                [tuple(torch.randint(23, (2, ROWS, 7))) for _ in range(STEPS)])
    if name == "ways":
        return (Masked(), masked_error, "sgd:lr=0.05", lambda p: torch.optim.SGD(p, lr=0.05),
                masked_batches())
    sparse = name == "sparse"
    make_optimizer = (lambda p: torch.optim.SGD(p, lr=0.1)) if sparse else torch.optim.Adam
    return (Taste(sparse), rate, "sgd:lr=0.1" if sparse else "adam", make_optimizer,
            [(torch.randint(31, (ROWS,)), torch.randint(17, (ROWS,)), torch.rand(ROWS))
             for _ in range(STEPS)])
