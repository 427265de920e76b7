#include "autodist/base/file_system.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>

#include "autodist/base/error.h"
#include "autodist/base/file.h"

namespace autodist {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& path, const char* doing, const std::string& reason) {
  fail(ErrorCode::kCheckpoint, "{}: {}: {}", path, doing, reason);
}

void check(const std::error_code& error, const std::string& path, const char* doing) {
  if (error) refuse(path, doing, error.message());
}

}  // namespace

void RealFileSystem::make_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  check(error, path, "make folder");
}

void RealFileSystem::write_synced(const std::string& path,
                                  const std::vector<std::string_view>& pieces) {
  try {
    OutputFile file(path);
    for (const std::string_view piece : pieces) file.write(piece.data(), piece.size());
    file.commit();
  } catch (const Error& error) {
    throw Error(ErrorCode::kCheckpoint, error.what());
  }
}

void RealFileSystem::sync_folder(const std::string& path) {
  try {
    autodist::sync_folder(path);
  } catch (const Error& error) {
    throw Error(ErrorCode::kCheckpoint, error.what());
  }
}

void RealFileSystem::rename(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::rename(from, to, error);
  check(error, from, "rename");
}

void RealFileSystem::remove_all(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  check(error, path, "remove");
}

std::string RealFileSystem::read(const std::string& path) {
  try {
    return read_file(path, std::int64_t{1} << 40);
  } catch (const Error& error) {
    throw Error(ErrorCode::kCheckpoint, error.what());
  }
}

bool RealFileSystem::exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

std::vector<std::string> RealFileSystem::list(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    names.push_back(entry.path().filename().string());
  }
  check(error, folder, "list");
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace autodist
