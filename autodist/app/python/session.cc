// A session's methods. The package's Session adds what is Python's.

#include <pybind11/functional.h>

#include <functional>
#include <variant>

#include "autodist/app/python/job.h"
#include "autodist/app/python/training_step.h"
#include "autodist/base/file.h"
#include "autodist/ir/loss_scaling.h"
#include "autodist/ir/optimizer.h"
#include "autodist/program/trace.h"
#include "autodist/report/html/run_log.h"

namespace autodist::python {
namespace {

void bind_reports(py::module_& module) {
  py::class_<StepReport>(module, "StepReport", "What the last step of this rank was.")
      .def_readonly("step", &StepReport::step, "Counts from 0.")
      .def_readonly("loss", &StepReport::loss, "Of this replica's rows; nan without rows.")
      .def_readonly("samples", &StepReport::samples, "Of this replica.")
      .def_property_readonly("total_seconds",
                             [](const StepReport& report) { return report.total.value; })
      .def_property_readonly(
          "waiting_seconds", [](const StepReport& report) { return report.waiting.value; },
          "Of the total, spent in waiting for other ranks.")
      .def_readonly("captured", &StepReport::captured,
                    "Whether its shapes were new and it was captured first.")
      .def_readonly("overflow", &StepReport::overflow,
                    "With loss scaling: whether a gradient of this rank was not finite.")
      .def_readonly("plan", &StepReport::plan, "That it ran under, by name, at the chief.")
      .def("__repr__", [](const StepReport& report) {
        return fmt::format("<autodist.StepReport {}: loss {}, {} samples>", report.step,
                           report.loss, report.samples);
      });
  py::class_<StepSummary>(module, "StepSummary", "What all ranks know of a step.")
      .def_readonly("step", &StepSummary::step, "-1: nothing yet.")
      .def_readonly("loss", &StepSummary::loss, "Over all samples of the step.")
      .def_readonly("samples", &StepSummary::samples, "Of all replicas.")
      .def_readonly("stop", &StepSummary::stop, "Whether some rank asked to stop.")
      .def_readonly("save", &StepSummary::save, "Whether some rank asked for a checkpoint.")
      .def_readonly("skipped", &StepSummary::skipped,
                    "With loss scaling: whether a gradient was not finite, and nothing updated.")
      .def("__repr__", [](const StepSummary& summary) {
        return fmt::format("<autodist.StepSummary {}: loss {}, {} samples>", summary.step,
                           summary.loss, summary.samples);
      });
  py::class_<PlanChange>(module, "PlanChange", "What the change to another plan was.")
      .def_property_readonly(
          "moved_bytes", [](const PlanChange& change) { return change.moved.value; },
          "From rank to rank.")
      .def_property_readonly(
          "predicted_seconds", [](const PlanChange& change) { return change.predicted.value; },
          "For moving that, by the rates of the cluster's links.")
      .def_readonly("forgotten", &PlanChange::forgotten,
                    "Names of parameters of which compression owed something, which is dropped.")
      .def("__repr__", [](const PlanChange& change) {
        return fmt::format("<autodist.PlanChange: {} moved>", to_string(change.moved));
      });
  py::class_<JobLoss>(module, "JobLoss")
      .def("value",
           [](const JobLoss& loss) {
             const py::gil_scoped_release unlocked;
             return loss.value();
           })
      .def_property_readonly("known", &JobLoss::known)
      .def_property_readonly("samples", &JobLoss::samples)
      .def_property_readonly("step", &JobLoss::step);
  py::class_<ir::LossScale>(module, "LossScale", "What loss scaling is at between two steps.")
      .def_readonly("scale", &ir::LossScale::scale, "Of the next step.")
      .def_readonly("good_steps", &ir::LossScale::good_steps,
                    "Without overflow, since the scale changed.")
      .def_readonly("skipped", &ir::LossScale::skipped, "Steps so far.")
      .def("__repr__", [](const ir::LossScale& scale) {
        return fmt::format("<autodist.LossScale {}: {} steps skipped>", scale.scale, scale.skipped);
      });
}

// A session's method as Python calls it, without the interpreter's lock.
template <typename Result, typename... Arguments>
auto called(Result (Session::*method)(Arguments...)) {
  return [method](SessionHandle& handle, Arguments... arguments) {
    return handle.call([&](Session& session) { return (session.*method)(arguments...); });
  };
}
template <typename Result, typename... Arguments>
auto called(Result (Session::*method)(Arguments...) const) {
  return [method](SessionHandle& handle, Arguments... arguments) {
    return handle.call([&](Session& session) { return (session.*method)(arguments...); });
  };
}

// Calls a method that neither waits nor computes: with the interpreter's lock, and after the end,
// too.
template <typename Result, typename... Arguments>
auto asked(Result (Session::*method)(Arguments...) const) {
  return [method](SessionHandle& handle, Arguments... arguments) {
    return (handle.get().*method)(arguments...);
  };
}

// called(), of a method that makes a step.
auto ran(double (Session::*method)(const Batch&)) {
  return [method](SessionHandle& handle, const py::sequence& tensors) {
    const Batch batch = batch_of(tensors);
    return handle.call([&](Session& session) { return (session.*method)(batch); });
  };
}

std::map<std::string, torch::Tensor> run_and_fetch(SessionHandle& handle,
                                                   const std::vector<std::string>& names,
                                                   const py::sequence& tensors) {
  const Batch batch = batch_of(tensors);
  return handle.call([&](Session& session) { return session.run_and_fetch(batch, names); });
}

PlanChange change_plan(SessionHandle& handle,
                       const std::variant<std::string, strategy::Strategy>& plan) {
  return handle.call([&](Session& session) {
    return std::visit([&](const auto& each) { return session.change_plan(each); }, plan);
  });
}

Statistics statistics_of(const std::string& name) {
  if (name == "chief") return Statistics::kChief;
  if (name == "mean") return Statistics::kMean;
  fail(ErrorCode::kUsage, "evaluate: statistics='{}', 'chief' or 'mean' expected", name);
}

// Of the first variable that is trained, at a step; 0 where none is.
double rate(SessionHandle& handle, std::int64_t step) {
  const ir::Graph& graph = handle.get().graph();
  for (const ir::Variable& variable : graph.variables) {
    if (!variable.gradient) continue;
    return variable.update.options.at("lr") * ir::factor_at(graph.schedule, step);
  }
  return 0;
}

}  // namespace

void bind_session(py::module_& module) {
  bind_reports(module);
  py::class_<SessionHandle>(module, "Session")
      .def("run", ran(&Session::run))
      .def("run_local", ran(&Session::run_local))
      .def("run_and_fetch", &run_and_fetch)
      .def("sum_over_ranks", called(&Session::sum_over_ranks))
      .def("settle", called(&Session::settle))
      .def("job_loss", called(&Session::job_loss))
      .def("job_number", called(&Session::job_number))
      .def("set_options", called(&Session::set_options))
      .def("change_plan", &change_plan)
      .def("synchronize", called(&Session::synchronize))
      .def("begin_evaluation",
           [](SessionHandle& handle, const std::string& statistics) {
             const Statistics whose = statistics_of(statistics);
             handle.call([&](Session& s) { s.begin_evaluation(whose); });
           })
      .def("end_evaluation",
           [](SessionHandle& handle) {
             if (handle.is_open()) handle.call([](Session& s) { s.end_evaluation(); });
           })
      .def("save",
           [](SessionHandle& handle, const std::string& directory, bool wait) {
             const SaveUntil until = wait ? SaveUntil::kWritten : SaveUntil::kCopied;
             handle.call([&](Session& s) { s.save(directory, until); });
           })
      .def("load", called(&Session::load))
      .def("resume", called(&Session::resume))
      .def("snapshot", called(&Session::snapshot))
      .def("keep",
           [](SessionHandle& handle, const std::string& name,
              const std::function<py::bytes()>& state,
              const std::function<void(py::bytes)>& restore) {
             autodist::Kept kept;
             kept.state = [state] {
               const py::gil_scoped_acquire lock;
               try {
                 return std::string(state());
               } catch (const py::error_already_set& error) {
                 if (!error.matches(PyExc_Exception)) throw;  // Ctrl-C
                 const std::string what = error.what();       // with a traceback
                 fail(ErrorCode::kUsage, "{}", what.substr(0, what.find('\n')));
               }
             };
             kept.restore = [restore](const std::string& bytes) {
               const py::gil_scoped_acquire lock;
               restore(py::bytes(bytes));
             };
             handle.call([&](Session& s) { s.keep(name, std::move(kept)); });
           })
      .def("summarise", called(&Session::summarise))
      .def("last_summary", called(&Session::last_summary))
      .def("loss_scale", called(&Session::loss_scale))
      .def("skipped_steps", called(&Session::skipped_steps))
      .def("export_torchscript", called(&Session::export_torchscript))
      // Rows since the last call, as JSON for Chrome and Perfetto.
      .def("write_trace",
           [](SessionHandle& handle, const std::string& path) {
             handle.call([&](Session& s) {
               write_file_atomically(path, program::to_chrome_json(s.take_trace()));
             });
           })
      .def("outputs", asked(&Session::outputs))
      .def("write_report",
           [](SessionHandle& handle, const std::string& path, const std::string& title,
              const report::RunLog& run) {
             const Session& session = handle.get();
             const py::gil_scoped_release unlocked;
             session.write_report(path, title, run, session.final_trace());
           })
      .def("finish", &SessionHandle::finish)
      .def("end_with_process", &SessionHandle::end_with_process)
      .def("wish_for_the_end", &SessionHandle::wish_for_the_end)
      .def("verify_next", &SessionHandle::verify_next)
      .def_property_readonly("only_serves",
                             [](SessionHandle& handle) {
                               const Session& session = handle.get();
                               return !session.program().computes(program::Rank(session.rank()));
                             })
      .def_property_readonly(
          "is_placed", [](SessionHandle& handle) { return handle.get().program().is_placed(); })
      .def("who_wishes_for_the_end", asked(&Session::who_wishes_for_the_end))
      .def("close", &SessionHandle::close, py::arg("reason") = "")
      .def_property_readonly("last", asked(&Session::last))
      .def_property_readonly("step", asked(&Session::step))
      .def_property_readonly("rank", asked(&Session::rank))
      .def_property_readonly("size", asked(&Session::size))
      .def_property_readonly("replica", asked(&Session::replica))
      .def_property_readonly("replicas", asked(&Session::replicas))
      .def("rate", &rate)
      .def("rows_of", asked(&Session::rows_of))
      .def_property_readonly(
          "graph",
          [](SessionHandle& handle) { return std::make_shared<ir::Graph>(handle.get().graph()); })
      .def_property_readonly("strategy", asked(&Session::strategy));
}

}  // namespace autodist::python
