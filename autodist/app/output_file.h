// Whether a result can be written is said before the work, not after it.

#pragma once

#include <string>
#include <vector>

namespace autodist::app {

// Throws Error(kEnvironment) where `path` cannot become a file: its folder is missing or closed to
// us, or it is a folder itself. An empty path is none. `option` names it in messages.
void expect_writable(const std::string& option, const std::string& path);

// The same of one that is appended to: where there is one, it must be open to us, not its folder.
void expect_appendable(const std::string& option, const std::string& path);

// The same of a folder, which may be one that is still to be made.
void expect_folder(const std::string& option, const std::string& path);

struct NamedFile {
  std::string option;
  std::string path;
};
// Throws Error(kUsage) where two of those that are written are one file, or one of them is read.
void expect_apart(const std::vector<NamedFile>& written, const std::vector<NamedFile>& read);

}  // namespace autodist::app
