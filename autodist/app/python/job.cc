// A process's place in a job, until its session takes it over.

#include "autodist/app/python/job.h"
#include "autodist/app/this_process.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "autodist/app/python/training_step.h"
#include "autodist/app/stop_signal.h"
#include "autodist/capture/torch_types.h"
#include "autodist/exec/optimizer_kernels.h"
#include "autodist/ir/optimizer.h"
#include "autodist/planning/history.h"
#include "autodist/search/autosync/autosync.h"

namespace autodist::python {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kBetweenLooks{100};  // while a strategy is searched

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

using Declared = std::tuple<std::string, py::object, std::optional<std::string>, std::string>;

// (name, step, optimizer's text or None, builder or "") each; a session for each, in order.
std::vector<std::unique_ptr<SessionHandle>> distribute_steps(
    JobHandle& job, const std::vector<Declared>& declared) {
  std::vector<NamedStep> steps;
  for (const auto& [name, step, optimizer, builder] : declared) {
    NamedStep named{name, training_step(step), std::nullopt, builder};
    if (optimizer) named.optimizer = ir::parse_optimizer(*optimizer);
    steps.push_back(std::move(named));
  }
  std::vector<std::unique_ptr<SessionHandle>> handles;
  const py::gil_scoped_release unlocked;
  Steps sessions = job.take().distribute(std::move(steps));
  for (const Declared& each : declared) {
    handles.push_back(std::make_unique<SessionHandle>(std::move(sessions.at(std::get<0>(each)))));
  }
  return handles;
}

torch::Tensor view(void* data, DType dtype, std::int64_t elements) {
  return torch::from_blob(data, {elements}, torch::TensorOptions(scalar_type_of(dtype)));
}

// rule(parameters, gradient, *states, lr=, step=, **options): tensors of one dimension, which it
// changes in place but for the gradient. A new tensor that it returns would be lost.
void add_rule(JobOptions& options, const std::string& name, int states, const py::object& rule) {
  const Kept function = keep(rule);
  options.user_rules.add(name, states, [function, name](const exec::UserUpdate& update) {
    const py::gil_scoped_acquire lock;
    py::list arguments;
    arguments.append(py::cast(view(update.parameters, update.dtype, update.elements)));
    // A copy: others may still read it, should the rule scale it in place.
    auto* gradient = const_cast<void*>(update.gradient);  // NOLINT: from_blob takes no other
    arguments.append(py::cast(view(gradient, update.dtype, update.elements).clone()));
    for (void* state : update.states) {
      arguments.append(py::cast(view(state, exec::state_dtype(update.dtype), update.elements)));
    }
    py::dict keywords;
    for (const auto& [key, value] : *update.options) keywords[py::str(key)] = value;
    keywords["lr"] = update.lr;
    keywords["step"] = update.step;
    const py::object made = (*function)(*arguments, **keywords);
    if (made.is_none() || !py::isinstance(made, py::module_::import("torch").attr("Tensor")))
      return;
    const auto tensor = made.cast<torch::Tensor>();
    const auto is_its = [&](const py::handle& each) {
      return tensor.is_alias_of(each.cast<torch::Tensor>());
    };
    if (std::any_of(arguments.begin(), arguments.end(), is_its)) return;
    fail(ErrorCode::kUsage,
         "update_rules: '{}' has returned a new tensor, which nobody takes. Change the parameters "
         "and the states in place (p.sub_(lr * g)), and return nothing.",
         name);
  });
}

// A variable's new version is its averaged gradient: for optimizers that update from that in Python
// (_own_updates.py).
void add_rule_of_gradients(JobOptions& options) {
  options.user_rules.add("averaged_gradient", 0, [](const exec::UserUpdate& update) {
    std::memcpy(update.parameters, update.gradient, update.elements * size_of(update.dtype));
  });
}

void set_search(JobOptions& options, const std::string& budget, std::uint64_t seed,
                const py::object& trials, bool counted_trials, bool library, bool history) {
  search::parse_budget(budget, "budget");
  options.search.any_trials =
      py::isinstance<py::str>(trials) && trials.cast<std::string>() == "any";
  if (!options.search.any_trials) {
    const bool is_number = py::isinstance<py::int_>(trials);
    options.search.trials = is_number ? trials.cast<std::int64_t>() : -1;
    if (options.search.trials < 0) {
      fail(ErrorCode::kUsage, "trials={}: 'any' or a whole number of 0 or more expected",
           py::repr(trials).cast<std::string>());
    }
  }
  options.search.budget = budget;
  options.search.seed = seed;
  options.search.counted_trials = counted_trials;
  options.search.library = library;
  options.search.history = history ? planning::history_folder(app::process_environment()) : "";
}

// Two functions of a text: JobOptions::progress, and SearchSettings::found.
void set_progress(JobOptions& options, const py::object& progress, const py::object& found) {
  const auto teller = [](const py::object& function) {
    return [kept = keep(function)](const std::string& text) {
      const py::gil_scoped_acquire lock;
      (*kept)(text);
    };
  };
  options.progress = teller(progress);
  options.search.found = teller(found);
}

// Lets handlers of signals run while the main thread waits or captures. What one raises once is
// raised again and again.
std::function<void()> handlers_of_signals() {
  auto raised = std::make_shared<std::optional<Interrupted>>();
  return [raised] {
    if (Py_IsInitialized() == 0) return;  // the end of a session that a script left open
    const py::gil_scoped_acquire lock;
    if (!*raised && PyErr_CheckSignals() != 0) raised->emplace(py::error_already_set());
    if (*raised) throw Interrupted(**raised);
  };
}

void tell_chief_to_stop() { app::tell_chief_to_stop(app::process_environment()); }

// While it lives, a signal whose handler cannot run (an op that takes long, a step that waits) ends
// the process as before the first step.
class EarlyEnd {
 public:
  EarlyEnd()
      : ends_(std::make_unique<app::EndsEarly>([] {
          tell_chief_to_stop();
          app::say_line(app::stopped_early(app::process_environment()));
        })) {}
  ~EarlyEnd() {
    if (!process_.is_this()) static_cast<void>(ends_.release());  // its thread is not here
  }
  EarlyEnd(const EarlyEnd&) = delete;
  EarlyEnd& operator=(const EarlyEnd&) = delete;

 private:
  OwnProcess process_;
  std::unique_ptr<app::EndsEarly> ends_;
};

void bind_options(py::module_& module) {
  py::class_<JobOptions>(module, "JobOptions")
      .def(py::init([] {
        JobOptions options;
        add_rule_of_gradients(options);
        options.while_waiting = handlers_of_signals();
        options.search.stop = [look = options.while_waiting, before = Clock::now()]() mutable {
          const Clock::time_point now = Clock::now();
          if (now - before < kBetweenLooks) return false;
          before = now;
          look();
          return false;
        };
        return options;
      }))
      .def_readwrite("builder", &JobOptions::builder)
      .def_readwrite("strategy_file", &JobOptions::strategy_file)
      .def_readwrite("plans_file", &JobOptions::plans_file)
      .def_readwrite("write_plans", &JobOptions::write_plans)
      .def_readwrite("seed", &JobOptions::seed)
      .def_readwrite("cpu_only", &JobOptions::cpu_only)
      .def_readwrite("measure", &JobOptions::measure)
      .def_readwrite("accumulate", &JobOptions::accumulate)
      .def_readwrite("snapshots", &JobOptions::snapshots)
      .def_readwrite("verify_every", &JobOptions::verify_every)
      .def_readwrite("verify_first", &JobOptions::verify_first)
      .def_readwrite("initial_weights", &JobOptions::initial_weights)
      .def_readwrite("command", &JobOptions::command)
      .def_readwrite("trace", &JobOptions::trace)
      .def_readwrite("trace_steps", &JobOptions::trace_steps)
      .def_readwrite("trace_at_end", &JobOptions::trace_at_end)
      .def_readwrite("loss_scaling", &JobOptions::loss_scaling)
      .def("set_search", &set_search)
      .def("set_progress", &set_progress)
      .def("add_rule", &add_rule)
      .def("set_builders", &set_builders)
      .def("set_encryption",
           [](JobOptions& options, const std::string& word) {
             options.encryption = encryption_from_name(word);
           })
      .def("set_on_nonfinite",
           [](JobOptions& options, const std::string& name) {
             options.on_nonfinite = exec::on_nonfinite_from_name(name, "on_nonfinite");
           })
      .def("set_limits", [](JobOptions& options, double join_seconds, double stall_seconds,
                            double silence_seconds) {
        options.join_limit = Seconds{join_seconds};
        options.stall_limit = Seconds{stall_seconds};
        options.silence_limit = Seconds{silence_seconds};
      });
}

}  // namespace

JobHandle::JobHandle(const std::string& cluster, JobOptions options) {
  const py::gil_scoped_release unlocked;
  job_ = std::make_unique<AutoDist>(cluster, options);
}

JobHandle::~JobHandle() {
  if (!process_.keeps(job_)) return;
  const py::gil_scoped_release unlocked;
  job_.reset();
}

AutoDist& JobHandle::take() {
  if (taken_) {
    fail(ErrorCode::kUsage,
         "distribute: this AutoDist has its session already. Give it several steps at once "
         "(distribute_steps), or run a program for each job.");
  }
  taken_ = true;
  return *job_;
}

void bind_job(py::module_& module) {
  bind_options(module);
  py::class_<JobHandle>(module, "Job")
      .def(py::init<const std::string&, JobOptions>())
      .def_property_readonly("rank", [](const JobHandle& handle) { return handle.job().rank(); })
      .def_property_readonly("size", [](const JobHandle& handle) { return handle.job().size(); })
      .def_property_readonly("launcher",
                             [](const JobHandle& handle) { return handle.job().launcher(); })
      .def("distribute", &distribute)
      .def("distribute_steps", &distribute_steps);
  module.def("end_at_second_signal", &app::end_at_second_signal);
  module.def("end_by_alone", &app::end_by_alone);
  module.def("tell_chief_to_stop", &tell_chief_to_stop);
  module.def("stop_signal_is_the_starters",
             [] { return app::stop_signal_is_the_starters(app::process_environment()); });
  module.def("stopped_early", [](const std::string& by) {
    return app::stopped_early(app::process_environment(), by);
  });
  py::class_<EarlyEnd>(module, "EarlyEnd").def(py::init<>());
  module.def(
      "optimizer_text",
      [](const std::string& text) { return ir::to_string(ir::parse_optimizer(text)); },
      "The canonical text of an optimizer.");
}

}  // namespace autodist::python
