// The one place where our errors become Python's.

#include <c10/util/Exception.h>

#include "autodist/app/python/bindings.h"
#include "autodist/base/error.h"

namespace autodist::python {
namespace {

// The class for the code, from the package, with the line as its message.
void raise(const Error& error) {
  // Libtorch leaves an exception set where Python code within a backward pass threw one: this error
  // is about that one, and nothing can be imported beside it.
  PyErr_Clear();
  const py::object type =
      py::module_::import("autodist._errors").attr("of_code")(static_cast<int>(error.code()));
  PyErr_SetObject(type.ptr(), type(text_of(error.what())).ptr());
}

bool interpreter_ends() {
  if (Py_IsInitialized() == 0) return true;
#if PY_VERSION_HEX >= 0x030d0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

}  // namespace

py::object text_of(const std::string& text) {
  const auto size = static_cast<Py_ssize_t>(text.size());
  auto decoded = py::reinterpret_steal<py::object>(
      PyUnicode_DecodeUTF8(text.data(), size, "backslashreplace"));
  if (!decoded) throw py::error_already_set();
  return decoded;
}

Kept keep(py::object object) {
  return {new py::object(std::move(object)), [](py::object* kept) {
            if (interpreter_ends()) return;
            const py::gil_scoped_acquire lock;
            delete kept;
          }};
}

void bind_errors() {
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(std::move(thrown));
    } catch (const Interrupted& signal) {
      signal.raise();
    } catch (const Error& error) {
      raise(error);
    } catch (const c10::Error& error) {  // libtorch's, without its backtrace
      PyErr_SetString(PyExc_RuntimeError, error.what_without_backtrace());
    }
  });
}

}  // namespace autodist::python
