// Sessions that a script leaves open: the interpreter's atexit does not tell how the process ends,
// and the C library does, when the interpreter is gone.

#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <iostream>
#include <vector>

#include "autodist/app/python/job.h"
#include "autodist/app/this_process.h"

namespace autodist::python {
namespace {

constexpr int kOtherFailure = 1;  // as what a script does not catch

// Never destroyed: they hold Python's objects, and threads that may still run.
std::vector<Session*>& left_open() {
  static auto* sessions = new std::vector<Session*>;
  return *sessions;
}

[[noreturn]] void end_now(int code) {
  std::cout.flush();
  std::cerr.flush();
  std::fflush(nullptr);
  ::_exit(code);
}

void at_process_end(int code, void* of) {
  if (left_open().empty() || ::getpid() != static_cast<pid_t>(reinterpret_cast<intptr_t>(of))) {
    return;
  }
  try {
    if (code != 0) {
      const std::string reason = fmt::format("its program ended with exit code {}", code);
      for (Session* session : left_open()) session->leave(reason);
      end_now(code);
    }
    for (Session* session : left_open()) session->finish();
  } catch (const Error& error) {
    app::say_line(error.what());
    end_now(static_cast<int>(error.code()));
  } catch (const std::exception& error) {
    app::say_line(error.what());
    end_now(kOtherFailure);
  }
}

// Of a process that would end with another one.
struct ExitCode {
  pid_t process;
  int instead_of;
  int code;
};

void replace_code(int code, void* by) {
  const auto* wanted = static_cast<const ExitCode*>(by);
  if (::getpid() == wanted->process && code == wanted->instead_of) end_now(wanted->code);
}

}  // namespace

void bind_process_end(py::module_& module) {
  // An interpreter's own cannot be changed at its end any more.
  module.def(
      "exit_with",
      [](int code, int instead_of) {
        ::on_exit(replace_code, new ExitCode{::getpid(), instead_of, code});  // for good
      },
      py::arg("code"), py::arg("instead_of"));
}

void SessionHandle::end_with_process() {
  if (!session_ || !process_.keeps(session_)) return;
  if (left_open().empty()) {
    ::on_exit(at_process_end, reinterpret_cast<void*>(static_cast<intptr_t>(::getpid())));
  }
  left_open().push_back(session_.release());
}

}  // namespace autodist::python
