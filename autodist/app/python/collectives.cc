// All-reduces by a library, where this build has none of its own: torch.distributed's Gloo, and its
// NCCL.

#include "autodist/app/python/bindings.h"
#include "autodist/comm/c10d/gloo.h"

#include <torch/torch.h>

#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/utils/pybind.h>

#include "autodist/comm/c10d/given_gloo.h"
#endif
#ifdef AUTODIST_GIVEN_NCCL
#include "autodist/comm/c10d/given_nccl.h"
#endif

namespace autodist::python {

#if TORCH_VERSION_MAJOR >= 2
namespace {

comm::BackendMaker maker_of(py::object function) {
  return [kept = keep(std::move(function))](const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                            int size, const std::string& where,
                                            std::chrono::milliseconds limit) {
    const py::gil_scoped_acquire lock;
    return (*kept)(store, rank, size, where, limit.count())
        .cast<c10::intrusive_ptr<c10d::Backend>>();
  };
}

}  // namespace
#endif

void bind_collectives(py::module_& module) {
  module.def("has_gloo", &comm::has_gloo);
#if TORCH_VERSION_MAJOR >= 2
  module.def("set_gloo_maker",
             [](py::object function) { comm::set_gloo_maker(maker_of(std::move(function))); });
#endif
#ifdef AUTODIST_GIVEN_NCCL
  module.def("set_nccl_maker", [](py::object function, py::object name) {
    comm::set_nccl_maker(maker_of(std::move(function)),
                         [kept = keep(std::move(name))](const std::string& device) {
                           const py::gil_scoped_acquire lock;
                           return (*kept)(device).cast<std::string>();
                         });
  });
#endif
}

}  // namespace autodist::python
