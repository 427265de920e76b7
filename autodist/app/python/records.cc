// The files in which a session keeps what its steps were. The package's Records fills them.

#include "autodist/app/metrics.h"
#include "autodist/app/output_file.h"
#include "autodist/app/python/bindings.h"
#include "autodist/app/this_process.h"
#include "autodist/job/launcher.h"
#include "autodist/report/html/run_log.h"

namespace autodist::python {

void bind_records(py::module_& module) {
  py::class_<app::MetricsLog>(module, "MetricsLog")
      .def("write",
           [](app::MetricsLog& log, std::int64_t step, double unix_seconds,
              const std::vector<std::pair<std::string, double>>& values, const std::string& plan) {
             return log.write({step, unix_seconds, values, plan});
           })
      .def_property_readonly("failure",
                             [](const app::MetricsLog& log) { return text_of(log.failure()); });
  module.def("open_lines", &app::open_lines);
  module.def("open_tensorboard", &app::open_tensorboard);
  module.def("expect_writable", &app::expect_writable);
  module.def("expect_lines", &app::expect_lines);
  module.def("expect_folder", &app::expect_folder);
  module.def("becomes_chief", [](const std::string& specification, bool cpu_only) {
    return job::becomes_chief(specification, cpu_only, app::process_environment());
  });
  module.def("is_launched", [] { return job::is_launched(app::process_environment()); });
  py::class_<report::RunLog>(module, "RunLog")
      .def(py::init<std::vector<std::string>>())
      .def("add", &report::RunLog::add);
}

}  // namespace autodist::python
