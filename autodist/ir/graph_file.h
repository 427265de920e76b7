// Graphs as files: a magic word, a format version, and a protobuf packed with zstd
// (docs/formats/graph.md).

#pragma once

#include <string>

#include "autodist/ir/graph.h"

namespace autodist::ir {

std::string serialize(const Graph& graph);

// A verified graph. `where` names the source in messages; throws Error(kUsage) for bytes that are
// no graph, are damaged, come from a newer version, or would take more memory than a graph of that
// size does, which is found before it is taken.
Graph deserialize(const std::string& bytes, const std::string& where);

// Whether they begin as a graph file does.
bool looks_like_graph(const std::string& bytes);

Graph read_graph(const std::string& path);
void write_graph(const std::string& path, const Graph& graph);

}  // namespace autodist::ir
