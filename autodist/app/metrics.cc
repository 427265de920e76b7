#include "autodist/app/metrics.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>

#include "autodist/app/event.pb.h"
#include "autodist/app/output_file.h"
#include "autodist/base/error.h"
#include "autodist/base/file.h"

namespace autodist::app {
namespace {

constexpr const char* kPlan = "plan";

// Writes the first step and what stands before it in a new file (a head, a version) as one record.
class Log : public MetricsLog {
 public:
  Log(const std::string& option, const std::string& path)
      : file_(path, option + " " + path), begun_(!file_.began_empty()) {}

  bool write(const StepMetrics& metrics) final {
    std::string record = begun_ ? "" : beginning(metrics);
    record += step(metrics);
    const bool written = file_.append(record);
    begun_ = begun_ || written;
    return written;
  }
  [[nodiscard]] const std::string& failure() const final { return file_.failure(); }

 protected:
  virtual std::string beginning(const StepMetrics& /*metrics*/) { return ""; }
  virtual std::string step(const StepMetrics& metrics) = 0;

 private:
  AppendedFile file_;
  bool begun_;
};

class JsonLines final : public Log {
 public:
  using Log::Log;

 private:
  std::string step(const StepMetrics& metrics) override {
    nlohmann::ordered_json row{{"step", metrics.step}};
    for (const auto& [name, value] : metrics.values) row[name] = value;
    if (!metrics.plan.empty()) row[kPlan] = metrics.plan;
    return row.dump() + "\n";
  }
};

std::string in_quotes(const std::string& text) {
  std::ostringstream quoted;
  quoted << std::quoted(text, '"', '"');
  return quoted.str();
}

bool is_csv(const std::string& path) { return std::filesystem::path(path).extension() == ".csv"; }

std::string head_of(const std::vector<std::string>& names) {
  return fmt::format("step,{}", fmt::join(names, ","));
}

// "" of a file that is not there, is empty, or is none that could be read without waiting.
std::string head_in(const std::string& path) {
  std::error_code unknown;
  std::string head;
  if (!std::filesystem::is_regular_file(path, unknown)) return head;
  std::getline(std::ifstream(path), head);
  if (!head.empty() && head.back() == '\r') head.pop_back();  // as spreadsheets write it
  return head;
}

// The column of plans stands last.
bool has_plan(const std::string& head) {
  const auto last = head.rfind(',');
  return last != std::string::npos && head.substr(last + 1) == kPlan;
}

// What is appended to was written by a run, too.
void expect_log(const std::string& option, const std::string& path,
                const std::vector<std::string>& names) {
  const std::string head = head_in(path);
  if (!head.empty() && !is_csv(path)) {
    const nlohmann::json first = nlohmann::json::parse(head, nullptr, /*allow_exceptions=*/false);
    if (first.is_object() && first.contains("step")) return;
    fail(ErrorCode::kUsage,
         "{} {}: is no log of steps, and would be appended to. Name another file.", option, path);
  }
  const std::string ours = head_of(names);
  if (head.empty() || head == ours || head == fmt::format("{},{}", ours, kPlan)) return;
  fail(ErrorCode::kUsage, "{} {}: has the columns '{}', '{}' expected. Name another file.", option,
       path, head, ours);
}

class Csv final : public Log {
 public:
  Csv(const std::string& option, const std::string& path)
      : Log(option, path), says_plan_(has_plan(head_in(path))) {}

 private:
  std::string beginning(const StepMetrics& metrics) override {
    std::vector<std::string> names;
    for (const auto& [name, value] : metrics.values) names.push_back(name);
    says_plan_ = !metrics.plan.empty();
    return head_of(names) + (says_plan_ ? fmt::format(",{}\n", kPlan) : "\n");
  }
  std::string step(const StepMetrics& metrics) override {
    std::string row = std::to_string(metrics.step);
    for (const auto& [name, value] : metrics.values) row += fmt::format(",{}", value);
    return row + (says_plan_ ? fmt::format(",{}\n", in_quotes(metrics.plan)) : "\n");
  }

  bool says_plan_;  // a log that began without a column for it goes on without
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

std::string event_file(const std::string& folder, double unix_seconds) {
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return fmt::format("{}/events.out.tfevents.{:010}.{}.{}", folder,
                     static_cast<std::int64_t>(unix_seconds), host.data(), ::getpid());
}

class TensorBoard final : public Log {
 public:
  TensorBoard(const std::string& option, const std::string& folder, double unix_seconds)
      : Log(option, event_file(folder, unix_seconds)), began_(unix_seconds) {}

 private:
  std::string beginning(const StepMetrics& /*metrics*/) override {
    tensorboard::Event version;
    version.set_wall_time(began_);
    version.set_file_version("brain.Event:2");
    return tensorboard_record(version.SerializeAsString());
  }
  std::string step(const StepMetrics& metrics) override {
    tensorboard::Event event;
    event.set_wall_time(metrics.unix_seconds);
    event.set_step(metrics.step);
    for (const auto& [name, value] : metrics.values) {
      tensorboard::Summary::Value& each = *event.mutable_summary()->add_value();
      each.set_tag(name);
      each.set_simple_value(static_cast<float>(value));
    }
    return tensorboard_record(event.SerializeAsString());
  }

  double began_;
};

}  // namespace

void expect_lines(const std::string& option, const std::string& path,
                  const std::vector<std::string>& names) {
  expect_appendable(option, path);
  expect_log(option, path, names);
}

std::unique_ptr<MetricsLog> open_lines(const std::string& option, const std::string& path,
                                       const std::vector<std::string>& names) {
  expect_log(option, path, names);
  if (is_csv(path)) return std::make_unique<Csv>(option, path);
  return std::make_unique<JsonLines>(option, path);
}

std::unique_ptr<MetricsLog> open_tensorboard(const std::string& option, const std::string& folder,
                                             double unix_seconds) {
  return std::make_unique<TensorBoard>(option, folder, unix_seconds);
}

std::string tensorboard_record(const std::string& bytes) {
  const std::string length = little_endian(std::uint64_t{bytes.size()});
  return length + little_endian(masked(crc32c(length))) + bytes +
         little_endian(masked(crc32c(bytes)));
}

}  // namespace autodist::app
