"""Graphs and strategies as values: files, nodes that change, a builder that is a function."""

import os
import pathlib
import tempfile

import comparing
from comparing import refused

comparing.skip_without_torch()

import autodist
import torch

import cases


def of_graphs(folder):
    model, loss_fn, _, _, batches = cases.make("encoder")
    graph = autodist.capture(model, loss_fn, batches[0])
    again = autodist.capture(model, loss_fn, tuple(each[:5] for each in batches[1]), measure=False)
    assert graph.batch_fixed_reason == "" and graph.example_batch == cases.ROWS
    assert again.example_batch == 5 and again.variables[0].name == "position"
    embed = graph.variable("head.weight")
    assert embed.name == "embed.weight" and embed.aliases == ["head.weight"] and embed.used
    assert (embed.shape, embed.dtype, embed.elements, embed.bytes) == ([23, 16], "f64", 368, 2944)
    assert len(graph.variables) == len(list(model.parameters()))
    assert graph.inputs == [("input0", True), ("input1", True)] and "aten::embedding" in graph.ops
    path = pathlib.Path(folder) / "encoder.adg"
    graph.save(path)
    loaded = autodist.Graph.load(path)
    assert loaded.digest == graph.digest and loaded.to_text() == graph.to_text()
    assert "Encoder" in loaded.summary()
    sparse = autodist.capture(*cases.make("sparse")[:2], cases.make("sparse")[4][0], measure=False)
    assert [each.sparse for each in sparse.variables] == [True, True, False, False, False, False]
    return graph


def of_strategies(folder, graph):
    path = os.path.join(folder, "cluster.yml")
    with open(path, "w", encoding="utf-8") as file:
        file.write("nodes:\n  - {address: 10.0.0.1, gpus: [0, 1], chief: true}\n"
                   "  - {address: 10.0.0.2, gpus: [0], ssh_config: a}\nssh:\n  a: {username: me}\n")
    cluster = autodist.ResourceSpec(path)
    assert cluster.ranks == ["10.0.0.1:GPU:0", "10.0.0.1:GPU:1", "10.0.0.2:GPU:0"]
    assert (cluster.size, cluster.chief, len(cluster.nodes)) == (3, "10.0.0.1", 2)
    assert autodist.Cluster.from_yaml(cluster.to_yaml()) == cluster
    known = autodist.builders()
    assert known["PartitionedPS"][0] and {"PS", "AllReduce", "Parallax", "BytePS"} <= set(known)
    plan = autodist.build_strategy("PartitionedPS", graph, cluster)
    plan.check(graph, cluster)
    assert plan.replicas == cluster.ranks and len(plan.nodes) == len(graph.variables)
    assert plan.nodes[1].variable == "embed.weight" and plan.nodes[1].synchronizer is None
    first = plan.nodes[1].parts[0]
    assert first.synchronizer.reduction_destination in cluster.servers and first.synchronizer.sync
    # Nodes change in place; synchronizers are replaced.
    node = plan.node("embed.weight")
    node.partitioner, node.parts = "", []
    node.synchronizer = autodist.PSSynchronizer("10.0.0.2:CPU:0", staleness=2, codec="fp16")
    assert plan.nodes[1].synchronizer.staleness == 2
    assert plan.nodes[1].synchronizer.compression == "fp16"
    comparing.raised(AttributeError, "", setattr, node.synchronizer, "staleness", 3)
    plan.check(graph, cluster)
    file = os.path.join(folder, "plan.strategy")
    assert plan.serialize(file) == plan.serialize()
    for again in (autodist.Strategy.deserialize(pathlib.Path(file)),
                  autodist.Strategy.deserialize(plan.serialize()),
                  autodist.Strategy.from_text(plan.to_text())):
        assert again == plan and again.node("embed.weight").synchronizer.staleness == 2
    plan.nodes.append(autodist.StrategyNode("strange:0", autodist.AllReduceSynchronizer(group=1)))
    refused("strange", plan.check, graph, cluster)
    return file


def of_functions(graph):
    cluster = autodist.Cluster("local:3")
    seen = []

    def turns(graph, cluster, first=1, kind="ps"):
        """In turn."""
        seen.append((first, kind, cluster.size))
        plan = autodist.Strategy()
        plan.replicas = cluster.ranks
        servers = [autodist.PSSynchronizer(each) for each in cluster.servers]
        plan.nodes = [
            autodist.StrategyNode(f"{each.name}:0", servers[(first + i) % cluster.size])
            for i, each in enumerate(graph.variables)]
        return plan

    plan = autodist.build_strategy(turns, graph, cluster)
    chosen = autodist.build_strategy("Turns:first=2", graph, cluster, builders={"Turns": turns})
    assert seen == [(1, "ps", 3), (2, "ps", 3)]
    assert [each.synchronizer.reduction_destination for each in plan.nodes][:3] == [
        cluster.servers[1], cluster.servers[2], cluster.servers[0]]
    assert chosen.nodes[0].synchronizer.reduction_destination == cluster.servers[2]
    flags = []

    def flagged(graph, cluster, flag=True):
        flags.append(flag)
        return plan

    def build_flagged(options):
        autodist.build_strategy(f"mine:{options}", graph, cluster, builders={"mine": flagged})

    for text in ("true", "1", "False", "0"):
        build_flagged(f"flag={text}")
    assert flags == [True, True, False, False], flags
    refused("builder 'mine': flag='yes', true or false expected", build_flagged, "flag=yes")
    def auto(graph, cluster):
        return plan

    for builder, own, text in (
            (auto, None, "builder: a function that is called 'auto', which is the name of the search"),
            ("PS", {"auto": turns}, "builders: 'auto' is the name of the search"),
            (turns, {"turns": flagged}, "a function that goes by the name 'turns', and builders= has"),
            (lambda graph, cluster: plan, {"own": turns}, "a function that goes by the name 'own'"),
            ("mine", {"mine": 3}, "(graph, cluster) -> Strategy expected, got int")):
        refused(text, autodist.build_strategy, builder, graph, cluster, builders=own)
        refused(text, autodist.AutoDist, builder=builder, builders=own)
    for wrong, text in ((lambda graph, cluster: None, "a Strategy expected"),
                        (lambda graph, cluster: {}["key"], "key")):
        comparing.raised((autodist.UsageError, KeyError), text, autodist.build_strategy, wrong, graph, cluster)


def of_jobs(folder):
    """A function and a file as a job's strategy; a checkpoint goes from one to the other."""
    model, loss_fn, optimizer, _, batches = cases.make("dense")

    def on_servers(graph, cluster):
        return autodist.build_strategy("PS", graph, cluster)

    ad = autodist.AutoDist("local:1", builder=on_servers)
    with ad.distribute(model, loss_fn, optimizer, batches[0]) as step:
        assert all(isinstance(each.synchronizer, autodist.PSSynchronizer)
                   for each in step.strategy.nodes)
        file = os.path.join(folder, "job.strategy")
        step.strategy.serialize(file)
        for batch in batches[:3]:
            step(*batch)
        assert step.summarise().step in (-1, 2) and step.last_summary().samples == cases.ROWS
        step.save(folder)
        for batch in batches[3:]:
            step(*batch)
        step.run_local(*(each[:5] for each in batches[0]))
        assert step.last.samples == 5
    expected = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model = cases.make("dense")[0]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    ad = autodist.AutoDist(autodist.Cluster("local:1"), strategy_file=file)
    with ad.distribute(model, loss_fn, optimizer, batches[0]) as step:
        assert step.load(folder) == 3 == step.step
        for batch in batches[3:]:
            step(*batch)
        step.run_local(*(each[:5] for each in batches[0]))
        step.synchronize()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, expected[name]), name


with tempfile.TemporaryDirectory() as temporary:
    captured = of_graphs(temporary)
    of_strategies(temporary, captured)
    of_functions(captured)
    of_jobs(temporary)
    print("graphs, strategies, builders: all as they should be")
