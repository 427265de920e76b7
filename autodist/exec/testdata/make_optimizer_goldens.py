"""Writes optimizer_goldens.txt beside itself: float64 updates by torch.optim (1.13).

For the optimizers that libtorch's C++ interface lacks. Run it with a Python that has torch:
    python3 make_optimizer_goldens.py
A line is the optimizer's text, a tab, and the parameters after each update.
"""

import pathlib

import torch

START = [0.5, -1.3, 2.0, 0.0, -0.375]
CASES = [
    ("adadelta", torch.optim.Adadelta, {}),
    ("adadelta:lr=0.5,rho=0.8,weight_decay=0.1", torch.optim.Adadelta,
     dict(lr=0.5, rho=0.8, weight_decay=0.1)),
    ("adamax:lr=0.01", torch.optim.Adamax, dict(lr=0.01)),
    ("adamax:beta1=0.8,beta2=0.9,weight_decay=0.1", torch.optim.Adamax,
     dict(betas=(0.8, 0.9), weight_decay=0.1)),
    ("nadam:lr=0.01", torch.optim.NAdam, dict(lr=0.01)),
    ("nadam:beta1=0.8,weight_decay=0.1,momentum_decay=0.1", torch.optim.NAdam,
     dict(betas=(0.8, 0.999), weight_decay=0.1, momentum_decay=0.1)),
    ("adam:lr=0.01,amsgrad=1", torch.optim.Adam, dict(lr=0.01, amsgrad=True)),
    ("adagrad:lr=0.1,initial_accumulator_value=0.5,lr_decay=0.01", torch.optim.Adagrad,
     dict(lr=0.1, initial_accumulator_value=0.5, lr_decay=0.01)),
    ("sgd:lr=0.1,momentum=0.9,dampening=0.5,weight_decay=0.1", torch.optim.SGD,
     dict(lr=0.1, momentum=0.9, dampening=0.5, weight_decay=0.1)),
    ("radam:lr=0.01", torch.optim.RAdam, dict(lr=0.01)),
    ("radam:lr=0.1,beta1=0.8,beta2=0.99,weight_decay=0.1", torch.optim.RAdam,
     dict(lr=0.1, betas=(0.8, 0.99), weight_decay=0.1)),
]


def gradient(step):
    """Multiples of 1/8, so that the test's own are the same."""
    return torch.tensor([((7 * i + 11 * step) % 13 - 6) / 8 for i in range(len(START))],
                        dtype=torch.float64)


def main():
    lines = []
    for text, kind, options in CASES:
        parameter = torch.tensor(START, dtype=torch.float64, requires_grad=True)
        optimizer = kind([parameter], **{"lr": 1.0, **options} if kind is torch.optim.SGD
                         else options)
        values = []
        for step in range(8 if kind is torch.optim.RAdam else 5):  # rectified from the sixth on
            parameter.grad = gradient(step)
            optimizer.step()
            values += [repr(value) for value in parameter.tolist()]
        lines.append(text + "\t" + " ".join(values) + "\n")
    path = pathlib.Path(__file__).with_name("optimizer_goldens.txt")
    path.write_text("".join(lines))


main()
