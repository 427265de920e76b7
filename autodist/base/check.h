// AD_CHECK(condition) << "what it means": an invariant of ours, checked in every build.
//
// A failure throws InternalError with file and line, so that a rank that finds a defect still
// leaves the job in order (peers are told, children are stopped) instead of aborting in the middle.

#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace autodist {

// A defect in AutoDist itself. main() prints it with a request to report it; exit code 70.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

namespace detail {

class CheckMessage {
 public:
  CheckMessage(const char* file, int line, const char* condition) {
    text_ << file << ":" << line << ": check failed: " << condition << " ";
  }
  template <typename T>
  CheckMessage& operator<<(const T& value) {
    text_ << value;
    return *this;
  }
  [[nodiscard]] std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
};

// `&` binds looser than `<<` and tighter than `?:`, so the whole message is there when it throws.
struct ThrowInternalError {
  [[noreturn]] void operator&(const CheckMessage& message) const {
    throw InternalError(message.text());
  }
};

}  // namespace detail
}  // namespace autodist

#define AD_CHECK(condition)                                \
  (condition) ? static_cast<void>(0)                       \
              : ::autodist::detail::ThrowInternalError{} & \
                    ::autodist::detail::CheckMessage(__FILE__, __LINE__, #condition)
