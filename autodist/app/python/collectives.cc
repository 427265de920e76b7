// All-reduces by a library, where this build has none of its own: torch.distributed's Gloo.

#include "autodist/app/python/bindings.h"
#include "autodist/comm/c10d/gloo.h"

#include <torch/torch.h>

#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/utils/pybind.h>

#include "autodist/comm/c10d/given_backend.h"
#endif

namespace autodist::python {

void bind_collectives(py::module_& module) {
  module.def("has_gloo", &comm::has_gloo);
#if TORCH_VERSION_MAJOR >= 2
  module.def("set_gloo_maker", [](py::object function) {
    comm::set_backend_maker([kept = keep(std::move(function))](
                                const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                const std::string& address, std::chrono::milliseconds limit) {
      const py::gil_scoped_acquire lock;
      return (*kept)(store, rank, size, address, limit.count())
          .cast<c10::intrusive_ptr<c10d::Backend>>();
    });
  });
#endif
}

}  // namespace autodist::python
