// A process's place in a job, until its session takes it over.

#include "autodist/app/python/job.h"

#include "autodist/app/python/training_step.h"
#include "autodist/base/error.h"
#include "autodist/ir/optimizer.h"

namespace autodist::python {
namespace {

void set_builders(JobOptions& options, const py::list& builders) {
  options.builders.clear();
  for (const py::handle each : builders) options.builders.push_back(builder_of(each));
}

std::unique_ptr<SessionHandle> distribute(JobHandle& job, const py::object& step,
                                          const std::string& optimizer) {
  TrainingStep training = training_step(step);
  const py::gil_scoped_release unlocked;
  const ir::Optimizer parsed = ir::parse_optimizer(optimizer);
  return std::make_unique<SessionHandle>(job.take().distribute(std::move(training), parsed));
}

void bind_options(py::module_& module) {
  py::class_<JobOptions>(module, "JobOptions")
      .def(py::init<>())
      .def_readwrite("builder", &JobOptions::builder)
      .def_readwrite("strategy_file", &JobOptions::strategy_file)
      .def_readwrite("seed", &JobOptions::seed)
      .def_readwrite("cpu_only", &JobOptions::cpu_only)
      .def_readwrite("measure", &JobOptions::measure)
      .def_readwrite("accumulate", &JobOptions::accumulate)
      .def_readwrite("verify_every", &JobOptions::verify_every)
      .def_readwrite("initial_weights", &JobOptions::initial_weights)
      .def_readwrite("command", &JobOptions::command)
      .def("set_builders", &set_builders)
      .def("set_on_nonfinite",
           [](JobOptions& options, const std::string& name) {
             options.on_nonfinite = exec::on_nonfinite_from_name(name);
           })
      .def("set_limits", [](JobOptions& options, double join_seconds, double stall_seconds) {
        options.join_limit = Seconds{join_seconds};
        options.stall_limit = Seconds{stall_seconds};
      });
}

}  // namespace

JobHandle::JobHandle(const std::string& cluster, const JobOptions& options) {
  const py::gil_scoped_release unlocked;
  job_ = std::make_unique<AutoDist>(cluster, options);
  rank_ = job_->rank();
  size_ = job_->size();
  launcher_ = job_->launcher();
}

JobHandle::~JobHandle() { close(); }

void JobHandle::close() {
  if (!job_) return;
  if (!process_.is_this()) {
    static_cast<void>(job_.release());
    return;
  }
  const py::gil_scoped_release unlocked;
  job_.reset();
}

AutoDist& JobHandle::take() {
  if (!job_ || taken_) {
    fail(ErrorCode::kUsage, "distribute: this AutoDist has its session already, or is closed");
  }
  taken_ = true;
  return *job_;
}

void bind_job(py::module_& module) {
  bind_options(module);
  py::class_<JobHandle>(module, "Job")
      .def(py::init<const std::string&, const JobOptions&>())
      .def_property_readonly("rank", &JobHandle::rank)
      .def_property_readonly("size", &JobHandle::size)
      .def_property_readonly("launcher", &JobHandle::launcher)
      .def("distribute", &distribute)
      .def("close", &JobHandle::close);
  module.def(
      "optimizer_text",
      [](const std::string& text) { return ir::to_string(ir::parse_optimizer(text)); },
      "The canonical text of an optimizer.");
}

}  // namespace autodist::python
