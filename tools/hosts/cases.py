"""What the benchmarks on testbeds train: small models that come with AutoDist, and their batches."""

# Samples per rank and step, so that a step takes a processor's core some tens of milliseconds.
SHIPPED = {"digits": 512, "vgg-small": 128, "gpt-small": 32, "resnet-small": 32, "bert-small": 16}
