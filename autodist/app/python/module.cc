// The extension module: its parts in the order in which their types need each other.

#include "autodist/app/python/bindings.h"

PYBIND11_MODULE(_autodist, module) {
  using namespace autodist::python;
  module.doc() = "AutoDist's library; use the package autodist.";
  module.attr("__version__") = AUTODIST_VERSION;
  bind_errors();
  bind_cluster(module);
  bind_graph(module);
  bind_graph_item(module);
  bind_strategy(module);
  bind_builders(module);
  bind_capture(module);
  bind_collectives(module);
  bind_job(module);
  bind_process_end(module);
  bind_records(module);
  bind_session(module);
}
