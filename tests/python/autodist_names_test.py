"""A script in AutoDist's own names: AutoDist, ResourceSpec, its builders, Saver, Strategy."""

import os
import sys
import tempfile

import comparing
from comparing import refused

comparing.skip_without_torch()

import torch
from autodist import AutoDist, build_strategy, capture
from autodist.checkpoint.saver import Saver
from autodist.resource_spec import ResourceSpec
from autodist.strategy import (
    PS,
    AllReduce,
    Parallax,
    PartitionedAR,
    PartitionedPS,
    PSLoadBalancing,
    RandomAxisPartitionAR,
    UnevenPartitionedPS,
)
from autodist.strategy.base import Strategy, StrategyBuilder
from torch import nn

from cases import mse

SPECIFICATION = """
nodes:
  - address: 10.0.0.1
    gpus: [0, 1]
    chief: true
    network_bandwidth: 25
  - address: 10.0.0.2
    cpus: [0, 1, 2]
    ssh_config: conf
ssh:
  conf:
    username: me
    port: 2222
    key_file: '/home/me/.ssh/id_rsa'
    python_venv: 'source venv/bin/activate'
    shared_envs:
      LD_LIBRARY_PATH: '/usr/local/lib'
"""


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(12, 4, sparse=True)
        self.out = nn.Linear(4, 2)

    def forward(self, x):
        return self.out(self.table(x).mean(1))


class OnTheFirst(StrategyBuilder):
    """As AutoDist's tutorial has it: every variable on the first CPU."""

    def build(self, graph_item, resource_spec):
        plan = AllReduce().build(graph_item, resource_spec)
        for node in plan.nodes:
            node.synchronizer = PS(staleness=2).build(graph_item, resource_spec).node(
                node.variable).synchronizer
        return plan


class Renamed(PSLoadBalancing):
    """One of ours, changed."""

    def build(self, graph_item, resource_spec):
        return PartitionedPS().build(graph_item, resource_spec)


def batch():
    return torch.randint(12, (8, 3)), torch.randn(8, 2)


def check_specification(path):
    specification = ResourceSpec(resource_file=path)
    assert specification.chief == "10.0.0.1"
    assert (specification.num_gpus, specification.num_cpus) == (2, 4)
    assert [name for name, _ in specification.gpu_devices] == ["10.0.0.1:GPU:0", "10.0.0.1:GPU:1"]
    cpus = dict(specification.cpu_devices)
    assert list(cpus) == ["10.0.0.1:CPU:0", *(f"10.0.0.2:CPU:{i}" for i in range(3))], cpus
    last = cpus["10.0.0.2:CPU:2"]
    assert (last.host_address, last.device_type, last.device_index) == ("10.0.0.2", "CPU", 2)
    assert last.name_string() == "10.0.0.2:CPU:2"
    assert specification.network_bandwidth == {"10.0.0.1": 25.0, "10.0.0.2": 1.0}
    ssh = specification.ssh_config_map
    assert ssh["10.0.0.1"] is None and ssh["10.0.0.2"].username == "me"
    assert ssh["10.0.0.2"].port == 2222 and ssh["10.0.0.2"].env == {
        "LD_LIBRARY_PATH": "/usr/local/lib"}
    assert ssh["10.0.0.2"].key_file.endswith("id_rsa") and "activate" in ssh["10.0.0.2"].python_venv
    return specification


def check_builders(specification, folder):
    graph = capture(Net(), mse, batch())
    same = {
        PS(True, True, 3): "PS:local_proxy_variable=true,staleness=3",
        PSLoadBalancing(sync=False): "PSLoadBalancing:sync=false",
        PartitionedPS(): "PartitionedPS",
        UnevenPartitionedPS(staleness=1): "UnevenPartitionedPS:staleness=1",
        AllReduce(1, "RING", compressor="HorovodCompressor"):
            "AllReduce:chunk_size=1,all_reduce_spec=RING,compressor=HorovodCompressor",
        PartitionedAR(chunk_size=2): "PartitionedAR:chunk_size=2",
        RandomAxisPartitionAR(): "RandomAxisPartitionAR",
        Parallax(chunk_size=1, staleness=2): "Parallax:chunk_size=1,staleness=2",
    }
    for builder, text in same.items():
        expected = build_strategy(text, graph, specification)
        for made in (builder.build(graph, specification),
                     build_strategy(builder, graph, specification)):
            made.id = expected.id
            assert made == expected, (builder, made.to_text(), expected.to_text())
    assert build_strategy(PSLoadBalancing, graph, specification).nodes
    assert build_strategy(Renamed(), graph, specification).node("table.weight").partitioner
    path = os.path.join(folder, "strategy")
    plan = build_strategy(OnTheFirst(), graph, specification)
    assert plan.node("out.bias").synchronizer.staleness == 2
    plan.serialize(path=path)
    assert Strategy.deserialize(path=path) == plan
    refused("staleness", AllReduce().build(graph, specification) and PS(staleness="many").build,
            graph, specification)


def check_job(folder):
    """Trains, saves and restores, in AutoDist's words but for `distribute`."""
    path = os.path.join(folder, "local.yml")
    with open(path, "w", encoding="utf-8") as file:
        file.write("nodes:\n  - address: localhost\n    cpus: [0]\n")
    model, example = Net(), batch()
    where = os.path.join(folder, "checkpoints")
    saver = Saver()
    ad = AutoDist(resource_spec_file=path, strategy_builder=PSLoadBalancing(sync=True))
    with ad.distribute(model, mse, "sgd:lr=0.1", example) as session:
        for _ in range(3):
            session.run(*example)
        session.synchronize()
        before = {name: each.clone() for name, each in model.state_dict().items()}
        first = saver.save(session, where, global_step=2)
        assert first == os.path.join(where, "step-3") and os.path.isdir(first), first
        refused("global_step", saver.save, session, where, "three")
        session.run(*example)
        second = saver.save(session, where)
    for named in (where, second):
        model = Net()
        with AutoDist(path, OnTheFirst()).distribute(model, mse, "sgd:lr=0.1",
                                                     example) as session:
            saver.restore(session, named)
            assert session.step == 4
    session = AutoDist(path, PS).distribute(Net(), mse, "sgd:lr=0.1", example)
    refused("newest sound checkpoint of its folder is step-4", saver.restore, session, first)
    session.close()
    assert before
    refused("resource_spec_file", AutoDist, path, resource_spec_file=path)
    refused("strategy_builder", AutoDist, path, PS(), builder="PS")


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "resource_spec.yml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(SPECIFICATION)
        check_builders(check_specification(path), folder)
        check_job(folder)
    print("AutoDist's names: as there")
    return 0


sys.exit(main())
