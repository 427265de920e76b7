#include "autodist/app/metrics.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>

#include "autodist/app/event.pb.h"
#include "autodist/base/file.h"

namespace autodist::app {
namespace {

constexpr const char* kPlan = "plan";

// What begins an empty file goes with its first step.
class Log : public MetricsLog {
 public:
  Log(const std::string& option, const std::string& path)
      : file_(path, option + " " + path), begun_(!file_.began_empty()) {}

  bool write(const StepMetrics& metrics) final {
    if (begun_ && refused_.empty()) refused_ = refusal(metrics);
    if (!refused_.empty()) return false;
    std::string record = begun_ ? "" : beginning(metrics);
    record += step(metrics);
    const bool written = file_.append(record);
    begun_ = begun_ || written;
    return written;
  }
  [[nodiscard]] const std::string& failure() const final {
    return refused_.empty() ? file_.failure() : refused_;
  }

 protected:
  [[nodiscard]] bool begun() const { return begun_; }
  virtual std::string beginning(const StepMetrics& /*metrics*/) { return ""; }
  // Why a step does not belong to what the file holds; empty: it does.
  virtual std::string refusal(const StepMetrics& /*metrics*/) { return ""; }
  virtual std::string step(const StepMetrics& metrics) = 0;

 private:
  AppendedFile file_;
  bool begun_;
  std::string refused_;
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

class Csv final : public Log {
 public:
  Csv(const std::string& option, const std::string& path) : Log(option, path), name_(option + " " + path) {
    if (!begun()) return;
    std::getline(std::ifstream(path), head_);
    const auto last = head_.rfind(',');
    says_plan_ = last != std::string::npos && head_.substr(last + 1) == kPlan;
  }

 private:
  std::string beginning(const StepMetrics& metrics) override {
    says_plan_ = !metrics.plan.empty();
    head_ = head_of(metrics);
    return head_ + "\n";
  }
  [[nodiscard]] std::string head_of(const StepMetrics& metrics) const {
    std::string head = "step";
    for (const auto& [name, value] : metrics.values) head += "," + name;
    return head + (says_plan_ ? fmt::format(",{}", kPlan) : "");
  }
  std::string refusal(const StepMetrics& metrics) override {
    const std::string expected = head_of(metrics);
    if (head_ == expected) return "";
    return fmt::format("{}: its columns are '{}', and these are '{}'. Name another file.", name_,
                       head_, expected);
  }
  std::string step(const StepMetrics& metrics) override {
    std::string row = std::to_string(metrics.step);
    for (const auto& [name, value] : metrics.values) row += fmt::format(",{}", value);
    return row + (says_plan_ ? fmt::format(",{}\n", in_quotes(metrics.plan)) : "\n");
  }

  std::string name_;
  std::string head_;
  bool says_plan_ = false;  // a log that began without a column for it goes on without
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

std::unique_ptr<MetricsLog> open_lines(const std::string& option, const std::string& path) {
  constexpr std::string_view kCsv = ".csv";
  const bool csv = path.size() > kCsv.size() && path.substr(path.size() - kCsv.size()) == kCsv;
  if (csv) return std::make_unique<Csv>(option, path);
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
