"""A checkpoint of two ranks loads into a plain PyTorch module and gives the same loss.

    load_in_pytorch.py AUTODIST

Exit code 77 (skipped) where PyTorch or NumPy is missing.
"""

import json
import struct
import subprocess
import sys
import tempfile

try:
    import numpy
    import torch
except ImportError as error:
    print(f"SKIPPED: {error}")
    sys.exit(77)


class Digits(torch.nn.Module):
    """The network of models/digits.cc, by its names."""

    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = torch.nn.Conv2d(16, 32, 3, padding=1)
        self.fc1 = torch.nn.Linear(32 * 4 * 4, 64)
        self.fc2 = torch.nn.Linear(64, 10)

    def forward(self, x):
        x = torch.relu(self.conv1(x))
        x = torch.max_pool2d(torch.relu(self.conv2(x)), 2).flatten(1)
        return self.fc2(torch.relu(self.fc1(x)))


def read_safetensors(path):
    """The whole format: a length, a JSON header, little-endian bytes."""
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    body = data[8 + length :]
    types = {"F32": numpy.float32, "F64": numpy.float64, "I64": numpy.int64}
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        array = numpy.frombuffer(body[begin:end], types[entry["dtype"]])
        tensors[name] = torch.from_numpy(array.copy()).reshape(entry["shape"])
    return tensors


def train(autodist, folder, *options):
    command = [autodist, "train", "digits", "--json", "--batch", "32", "--save", f"{folder}/ckpt"]
    command += options
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(output)


def fine_tune(autodist, folder, model, images, labels):
    """The exported file computes what the model does, and trains on without the model's code."""
    subprocess.run([autodist, "export", "digits", "--resume", f"{folder}/ckpt", "-o",
                    f"{folder}/digits.pt"], check=True, stdout=subprocess.DEVNULL)
    exported = torch.jit.load(f"{folder}/digits.pt")
    difference = (exported(images) - model(images)).abs().max().item()
    if difference > 1e-5:
        sys.exit(f"the exported file's logits differ by {difference}")
    optimizer = torch.optim.SGD(exported.parameters(), lr=0.1)
    losses = []
    for _ in range(50):
        optimizer.zero_grad()
        loss = exported.train_step(images, labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"fine-tuned from {losses[0]:.4f} to {losses[-1]:.4f}")
    if losses[-1] > 0.9 * losses[0]:
        sys.exit("the exported train_step does not train")


def main():
    autodist = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        train(autodist, folder, "--cluster", "local:2", "--builder", "PartitionedPS",
              "--steps", "40", "--optimizer", "adam:lr=1e-3")
        model = Digits()
        model.load_state_dict(read_safetensors(f"{folder}/ckpt/step-40/model.safetensors"))

        # The loss that the next step reports on a batch is PyTorch's on the loaded parameters.
        generator = numpy.random.default_rng(5)
        images = generator.random((32, 1, 8, 8), numpy.float32)
        labels = generator.integers(0, 10, 32)
        numpy.save(f"{folder}/x0.npy", images)
        numpy.save(f"{folder}/x1.npy", labels)
        for cluster, builder in (("local:1", "PS"), ("local:2", "AllReduce")):
            ours = train(autodist, f"{folder}/{builder}", "--data", folder, "--resume",
                         f"{folder}/ckpt", "--steps", "41", "--cluster", cluster, "--builder",
                         builder)["loss"]
            with torch.no_grad():
                theirs = torch.nn.functional.cross_entropy(
                    model(torch.from_numpy(images)), torch.from_numpy(labels)).item()
            print(f"{builder}: ours {ours:.7f}, PyTorch's {theirs:.7f}")
            if abs(ours - theirs) > 1e-5:
                sys.exit(f"{builder}: the losses differ")
        fine_tune(autodist, folder, model, torch.from_numpy(images), torch.from_numpy(labels))


main()
