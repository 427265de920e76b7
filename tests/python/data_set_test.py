"""AutoDist's files by its own module paths, as scripts over its data sets read them."""

import os
import sys
import tempfile

import comparing

comparing.skip_without_torch()

SOURCE = os.path.join(comparing.HERE, "..", "..")
ITEM = os.path.join(SOURCE, "autodist", "ir", "testdata", "small.graph_item")
SPECIFICATION = os.path.join(SOURCE, "tests", "testdata", "resource_specs", "two_and_one.yml")
# A strategy file of AutoDist's own.
STRATEGY = bytes.fromhex(
    "0a163230323030353035543137343331314d3635303336341a190a03573a3012120a0e31302e302e302e313a435055"
    "3a3018011a070a03623a301a001a360a03453a302203322c312a140a0a452f706172745f303a301a06080110011803"
    "2a140a0a452f706172745f313a301a0608011001180322200a0e31302e302e302e313a4750553a300a0e31302e302e"
    "302e323a4750553a30")


def main():
    from autodist.graph_item import GraphItem
    from autodist.resource_spec import ResourceSpec
    from autodist.strategy.base import Strategy

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "20200505T174311M650364")
        with open(path, "wb") as file:
            file.write(STRATEGY)
        strategy = Strategy.deserialize(path)
        assert [node.name for node in strategy.nodes] == ["W:0", "b:0", "E:0"], strategy.nodes
        assert strategy.node("E").partitioner == "2,1"
        assert list(strategy.replicas) == ["10.0.0.1:GPU:0", "10.0.0.2:GPU:0"]
        assert strategy.serialize() == STRATEGY

        item = GraphItem.deserialize(ITEM)
        trained = [each for each in item.variables if each.trainable]
        assert trained and all(each.shape is not None for each in trained), item
        assert {each.name for each in trained} >= set(item.gradients)
        again = os.path.join(folder, "graph_item")
        item.serialize(again)
        assert [each.name for each in GraphItem.deserialize(again).variables] == [
            each.name for each in item.variables]

        import autodist

        cluster = ResourceSpec(SPECIFICATION)
        plan = autodist.build_strategy("PartitionedPS", item.graph(), cluster)
        assert [node.name for node in plan.nodes] == [f"{each.name}:0" for each in trained]
        plan.check(item.graph(), cluster)
        comparing.refused("", GraphItem.deserialize, SPECIFICATION)
    print(f"{len(item.ops)} ops, {len(trained)} trained variables, {len(plan.nodes)} nodes")
    return 0


sys.exit(main())
