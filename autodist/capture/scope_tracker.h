// Which module an op belongs to: what ModuleScope says; else the module of the parameters it reads;
// else that of what it reads. A backward op belongs to the module of its forward op, which autograd
// tells by sequence numbers. Private to capture; knows no tensors.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "autodist/ir/graph.h"

namespace autodist::capture {

class ScopeTracker {
 public:
  // Keeps graph.scopes; `graph` outlives the tracker.
  explicit ScopeTracker(ir::Graph& graph);

  // "layer1.conv.weight" names a tensor of module "layer1.conv".
  void name_storage(ir::StorageId storage, const std::string& tensor_name);

  // The scope of a forward op. `sequence_number` is autograd's next one.
  ir::ScopeId forward(const std::vector<ir::StorageId>& read, std::uint64_t sequence_number);
  // The scope of an op that runs inside of the autograd node `node` (-1: between nodes).
  ir::ScopeId backward(const std::vector<ir::StorageId>& read, std::int64_t node);

  // What `scope`'s op made.
  void made(ir::StorageId storage, ir::ScopeId scope) { makers_[storage] = scope; }

 private:
  ir::ScopeId intern(const std::string& scope);
  ir::ScopeId inferred(const std::vector<ir::StorageId>& read) const;

  ir::Graph& graph_;
  std::map<std::string, ir::ScopeId> ids_;
  std::map<ir::StorageId, ir::ScopeId> named_;
  std::map<ir::StorageId, ir::ScopeId> makers_;
  std::vector<ir::ScopeId> nodes_;  // by sequence number, from first_node_ on
  std::uint64_t first_node_ = 0;
  bool started_ = false;
  ir::ScopeId last_;
};

}  // namespace autodist::capture
