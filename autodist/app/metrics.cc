#include "autodist/app/metrics.h"

#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "autodist/app/event.pb.h"
#include "autodist/base/error.h"

namespace autodist::app {
namespace {

std::ofstream open(const std::string& path, const char* what) {
  std::ofstream file(path, std::ios::app | std::ios::binary);
  if (!file) fail(ErrorCode::kUsage, "{} {}: cannot be written to", what, path);
  return file;
}

class JsonLines final : public MetricsLog {
 public:
  explicit JsonLines(const std::string& path) : file_(open(path, "--log")) {}

  void write(const StepMetrics& metrics) override {
    nlohmann::ordered_json row{{"step", metrics.step}};
    for (const auto& [name, value] : metrics.values) row[name] = value;
    file_ << row.dump() << "\n" << std::flush;
  }

 private:
  std::ofstream file_;
};

class Csv final : public MetricsLog {
 public:
  explicit Csv(const std::string& path) : file_(open(path, "--log")) {
    needs_head_ = file_.tellp() == 0;
  }

  void write(const StepMetrics& metrics) override {
    std::string head = "step";
    std::string row = std::to_string(metrics.step);
    for (const auto& [name, value] : metrics.values) {
      head += "," + name;
      row += fmt::format(",{}", value);
    }
    if (std::exchange(needs_head_, false)) file_ << head << "\n";
    file_ << row << "\n" << std::flush;
  }

 private:
  std::ofstream file_;
  bool needs_head_ = false;
};

// CRC-32C (Castagnoli), bit by bit: some hundred bytes a step.
std::uint32_t crc32c(const std::string& bytes) {
  std::uint32_t crc = 0xffffffffU;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1U) != 0 ? 0x82f63b78U : 0U);
  }
  return ~crc;
}

// A checksum of data that holds checksums is weak; TensorFlow's records rotate it and add to it.
std::uint32_t masked(std::uint32_t crc) { return (crc >> 15 | crc << 17) + 0xa282ead8U; }

template <typename Integer>
std::string little_endian(Integer value) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof value; ++i) {
    bytes.push_back(static_cast<char>(value >> (8 * i) & 0xff));
  }
  return bytes;
}

class TensorBoard final : public MetricsLog {
 public:
  TensorBoard(const std::string& folder, double unix_seconds) {
    std::error_code ignored;
    std::filesystem::create_directories(folder, ignored);
    std::array<char, 256> host{};
    ::gethostname(host.data(), host.size() - 1);
    file_ = open(fmt::format("{}/events.out.tfevents.{:010}.{}.{}", folder,
                             static_cast<std::int64_t>(unix_seconds), host.data(), ::getpid()),
                 "--tensorboard");
    tensorboard::Event version;
    version.set_wall_time(unix_seconds);
    version.set_file_version("brain.Event:2");
    add(version);
  }

  void write(const StepMetrics& metrics) override {
    tensorboard::Event event;
    event.set_wall_time(metrics.unix_seconds);
    event.set_step(metrics.step);
    for (const auto& [name, value] : metrics.values) {
      tensorboard::Summary::Value& each = *event.mutable_summary()->add_value();
      each.set_tag(name);
      each.set_simple_value(static_cast<float>(value));
    }
    add(event);
  }

 private:
  void add(const tensorboard::Event& event) {
    file_ << tensorboard_record(event.SerializeAsString()) << std::flush;
  }

  std::ofstream file_;
};

}  // namespace

std::unique_ptr<MetricsLog> open_lines(const std::string& path) {
  constexpr std::string_view kCsv = ".csv";
  const bool csv = path.size() > kCsv.size() && path.substr(path.size() - kCsv.size()) == kCsv;
  if (csv) return std::make_unique<Csv>(path);
  return std::make_unique<JsonLines>(path);
}

std::unique_ptr<MetricsLog> open_tensorboard(const std::string& folder, double unix_seconds) {
  return std::make_unique<TensorBoard>(folder, unix_seconds);
}

std::string tensorboard_record(const std::string& bytes) {
  const std::string length = little_endian(std::uint64_t{bytes.size()});
  return length + little_endian(masked(crc32c(length))) + bytes +
         little_endian(masked(crc32c(bytes)));
}

}  // namespace autodist::app
