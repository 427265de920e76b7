// Whether a result can be written is said before the work, not after it.

#pragma once

#include <string>
#include <vector>

namespace autodist::app {

// Throws Error(kEnvironment) where `path` cannot become a file: its folder is missing or closed to
// us, or it is a folder itself. An empty path is none. `option` names it in messages.
void expect_writable(const std::string& option, const std::string& path);

// Throws Error(kEnvironment) where `path` cannot be appended to: where it is a file already, that
// must be open to us, and its folder need not be. Else as expect_writable().
void expect_appendable(const std::string& option, const std::string& path);

// Throws Error(kEnvironment) where `path` cannot be a folder to write in; it may be one that is
// still to be made. An empty path is none.
void expect_folder(const std::string& option, const std::string& path);

struct NamedFile {
  std::string option;
  std::string path;
};
// Throws Error(kUsage) where two of those that are written are one file, or one of them is read.
void expect_apart(const std::vector<NamedFile>& written, const std::vector<NamedFile>& read);

}  // namespace autodist::app
