// The extension `_autodist` below the Python package `autodist` (python/autodist): thin, one
// function per part of the library. What is Python's alone (walking a torch.nn.Module, mapping
// torch.optim) is written in Python.
//
// Whatever may wait, compute or call back runs without the interpreter's lock.

#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <vector>

#include "autodist/base/error.h"
#include "autodist/cluster/cluster.h"
#include "autodist/search/builders/builders.h"
#include "autodist/strategy/strategy.h"

// Nodes are changed in place: plan.nodes[0].partitioner = "2,1".
PYBIND11_MAKE_OPAQUE(std::vector<autodist::strategy::NodeConfig>)

namespace autodist::python {

namespace py = pybind11;

void bind_errors();
void bind_cluster(py::module_& module);
void bind_graph(py::module_& module);
void bind_graph_item(py::module_& module);
void bind_strategy(py::module_& module);
void bind_builders(py::module_& module);
void bind_capture(py::module_& module);
void bind_collectives(py::module_& module);
void bind_job(py::module_& module);
void bind_process_end(py::module_& module);
void bind_records(py::module_& module);
void bind_session(py::module_& module);

// For people to read: what is not UTF-8 in it (a file's name) is escaped.
py::object text_of(const std::string& text);

// A cluster and what it was read from: what a job is told.
struct SourcedCluster : cluster::Cluster {
  std::string source;
};

// A Python object that code without the interpreter's lock keeps and drops, on any thread. Use it
// under a py::gil_scoped_acquire. After the interpreter's end it is left to the system.
using Kept = std::shared_ptr<py::object>;
Kept keep(py::object object);

// Ctrl-C, sys.exit() or what a signal's handler raised while a call waited or a step was captured:
// nothing that a capture may take for a step that does not run. It leaves the call as it is.
struct __attribute__((visibility("hidden"))) Interrupted : Error {
  explicit Interrupted(const py::error_already_set& by)
      : Error(ErrorCode::kPeersLost, "interrupted"),
        type_(keep(by.type())),
        value_(keep(by.value())),
        trace_(keep(by.trace())) {}
  // REQUIRES: the interpreter's lock.
  void raise() const {
    PyErr_Restore(type_->inc_ref().ptr(), value_->inc_ref().ptr(), trace_->inc_ref().ptr());
  }

 private:
  Kept type_;
  Kept value_;
  Kept trace_;
};

// (name, description, {option: default}, callable(graph, cluster, options) -> Strategy), as the
// package makes it from a user's function.
search::Builder builder_of(const py::handle& tuple);

}  // namespace autodist::python
