#include "autodist/base/sort_unique.h"
#include "autodist/ir/graph.h"
#include "autodist/ir/history.h"

namespace autodist::ir {
namespace {

// What happened to one storage so far.
struct Access {
  std::optional<OpId> writer;  // of its present version
  std::vector<OpId> readers;   // of its present version
};

}  // namespace

std::vector<std::vector<OpId>> dependencies(const Graph& graph) {
  const History history(graph);
  std::vector<Access> accesses(graph.storages.size());
  std::optional<OpId> last_random;
  std::vector<std::vector<OpId>> before(graph.ops.size());
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    const OpId id(i);
    const Op& op = graph.op(id);
    const auto add = [&](std::optional<OpId> other) {
      if (other && *other < id) before[i].push_back(*other);
    };
    for_each_read(op, [&](ValueId read) {
      const Value& value = graph.value(read);
      Access& access = accesses[value.storage.value];
      add(access.writer);
      add(history.slot_maker(value.slot));
      access.readers.push_back(id);
    });
    for (StorageId storage : written_storages(graph, op)) {
      Access& access = accesses[storage.value];
      add(access.writer);
      for (OpId reader : access.readers) add(reader);
      access = {id, {}};
    }
    for_each_result(op, [&](ValueId result) {
      const StorageId storage = graph.value(result).storage;
      Access& access = accesses[storage.value];
      const bool created = !exists_before_step(graph.storages[storage.value]) && !access.writer;
      if (created) access.writer = id;
    });
    if (op.random) {
      add(last_random);
      last_random = id;
    }
    sort_unique(before[i]);
  }
  return before;
}

}  // namespace autodist::ir
