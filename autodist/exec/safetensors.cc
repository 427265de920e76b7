#include "autodist/exec/safetensors.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/comm/bytes.h"

namespace autodist::exec {
namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kLongestHeader = 100'000'000;  // the reference implementation's bound
constexpr std::size_t kMostDimensions = 64;
constexpr const char* kMetadata = "__metadata__";

struct Name {
  DType dtype;
  const char* name;
};
constexpr Name kNames[] = {
    {DType::kFloat32, "F32"},   {DType::kFloat64, "F64"},  {DType::kFloat16, "F16"},
    {DType::kBFloat16, "BF16"}, {DType::kInt8, "I8"},      {DType::kUInt8, "U8"},
    {DType::kInt16, "I16"},     {DType::kInt32, "I32"},    {DType::kInt64, "I64"},
    {DType::kBool, "BOOL"},     {DType::kComplex64, "C64"}};

const char* format_name(const TensorData& tensor) {
  for (const Name& each : kNames) {
    if (each.dtype == tensor.dtype) return each.name;
  }
  fail(ErrorCode::kCheckpoint, "'{}': safetensors has no dtype for {}", tensor.name,
       name_of(tensor.dtype));
}

constexpr char kWrittenBy[] =
    "A file of `autodist ckpt extract` or safetensors.torch.save_file expected.";

// Reads one file; what it refuses of a tensor names that tensor.
class Reader {
 public:
  Reader(const std::string& bytes, const std::string& where) : bytes_(bytes), where_(where) {}

  Safetensors run() {
    const nlohmann::json header = read_header();
    Safetensors file;
    for (const auto& [name, entry] : header.items()) {
      if (name == kMetadata) {
        read_metadata(entry, file);
      } else {
        read_entry(name, entry);
      }
    }
    std::sort(spans_.begin(), spans_.end(),
              [](const Span& a, const Span& b) { return a.begin < b.begin; });
    std::uint64_t end = 0;
    for (Span& span : spans_) {
      if (span.begin != end) refuse(span.tensor.name, "its bytes overlap others or leave a gap");
      end = span.end;
      span.tensor.bytes = bytes_.substr(data_begin_ + span.begin, span.end - span.begin);
      file.tensors.push_back(std::move(span.tensor));
    }
    if (end != bytes_.size() - data_begin_) {
      fail(ErrorCode::kCheckpoint, "{}: {} bytes of tensors, the header describes {}. {}", where_,
           bytes_.size() - data_begin_, end, kWrittenBy);
    }
    return file;
  }

 private:
  struct Span {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    TensorData tensor;
  };

  [[noreturn]] void refuse(const std::string& name, const std::string& why) const {
    fail(ErrorCode::kCheckpoint, "{}: '{}': {}. {}", where_, name, why, kWrittenBy);
  }

  nlohmann::json read_header() {
    if (bytes_.size() < kLengthBytes) {
      fail(ErrorCode::kCheckpoint, "{}: not safetensors: {} bytes. {}", where_, bytes_.size(),
           kWrittenBy);
    }
    const std::uint64_t length = comm::ByteReader(bytes_).u64();
    if (length > kLongestHeader || length > bytes_.size() - kLengthBytes) {
      fail(ErrorCode::kCheckpoint,
           "{}: not safetensors, or truncated: a header of {} bytes in {}. {}", where_, length,
           bytes_.size(), kWrittenBy);
    }
    data_begin_ = kLengthBytes + length;
    // A name that stands twice would silently replace the first.
    std::set<std::string> names;
    const auto unique = [&](int depth, nlohmann::json::parse_event_t event,
                            nlohmann::json& parsed) {
      if (depth == 1 && event == nlohmann::json::parse_event_t::key &&
          !names.insert(parsed.get<std::string>()).second) {
        refuse(parsed.get<std::string>(), "stands twice");
      }
      constexpr int kDeepest = 4;
      if (depth > kDeepest) {
        fail(ErrorCode::kCheckpoint, "{}: a header nested too deeply. {}", where_, kWrittenBy);
      }
      return true;
    };
    const auto begin = bytes_.begin() + kLengthBytes;
    const nlohmann::json header =
        nlohmann::json::parse(begin, begin + static_cast<std::ptrdiff_t>(length), unique, false);
    if (!header.is_object()) {
      fail(ErrorCode::kCheckpoint, "{}: not safetensors: the header is no JSON object. {}", where_,
           kWrittenBy);
    }
    return header;
  }

  void read_metadata(const nlohmann::json& entry, Safetensors& file) const {
    if (!entry.is_object()) refuse(kMetadata, "no object");
    for (const auto& [key, value] : entry.items()) {
      if (!value.is_string()) refuse(kMetadata, "'" + key + "' is no text");
      file.metadata[key] = value.get<std::string>();
    }
  }

  void read_entry(const std::string& name, const nlohmann::json& entry) {
    Span span;
    span.tensor.name = name;
    const bool complete = entry.is_object() && entry.contains("dtype") &&
                          entry["dtype"].is_string() && entry.contains("shape") &&
                          entry["shape"].is_array() && entry.contains("data_offsets") &&
                          entry["data_offsets"].is_array() && entry["data_offsets"].size() == 2;
    if (!complete) refuse(name, "dtype, shape and two data_offsets expected");
    const std::string dtype = entry["dtype"].get<std::string>();
    const auto* known = std::find_if(std::begin(kNames), std::end(kNames),
                                     [&](const Name& each) { return dtype == each.name; });
    if (known == std::end(kNames)) refuse(name, "unknown dtype '" + dtype + "'");
    span.tensor.dtype = known->dtype;
    const std::uint64_t available = bytes_.size() - data_begin_;
    for (const nlohmann::json& offset : entry["data_offsets"]) {
      if (!offset.is_number_unsigned() || offset.get<std::uint64_t>() > available) {
        refuse(name, "data_offsets outside of the file");
      }
    }
    span.begin = entry["data_offsets"][0].get<std::uint64_t>();
    span.end = entry["data_offsets"][1].get<std::uint64_t>();
    if (span.end < span.begin) refuse(name, "data_offsets run backwards");
    if (entry["shape"].size() > kMostDimensions) refuse(name, "too many dimensions");
    std::uint64_t expected = size_of(span.tensor.dtype);
    for (const nlohmann::json& size : entry["shape"]) {
      if (!size.is_number_unsigned()) refuse(name, "a size that is no whole number");
      const auto value = size.get<std::uint64_t>();
      // With room for nothing larger than the file, the product cannot overflow.
      if (value > available + 1 || (value != 0 && expected > (available + 1) * 16 / value)) {
        refuse(name, "shape larger than its bytes");
      }
      expected *= value;
      span.tensor.shape.push_back(static_cast<std::int64_t>(value));
    }
    if (expected != span.end - span.begin) {
      refuse(name,
             fmt::format("{} bytes, its shape and dtype need {}", span.end - span.begin, expected));
    }
    spans_.push_back(std::move(span));
  }

  const std::string& bytes_;
  const std::string& where_;
  std::size_t data_begin_ = 0;
  std::vector<Span> spans_;
};

}  // namespace

std::string safetensors_head(const std::vector<TensorData>& tensors,
                             const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  std::size_t at = 0;
  for (const TensorData& tensor : tensors) {
    const std::size_t size = std::accumulate(tensor.shape.begin(), tensor.shape.end(),
                                             size_of(tensor.dtype), std::multiplies<>());
    AD_CHECK(size == tensor.bytes.size()) << tensor.name;
    AD_CHECK(!header.contains(tensor.name)) << tensor.name << " twice";
    header[tensor.name] = {{"dtype", format_name(tensor)},
                           {"shape", tensor.shape},
                           {"data_offsets", {at, at + tensor.bytes.size()}}};
    at += tensor.bytes.size();
  }
  std::string text = header.dump();
  text.resize((text.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes, ' ');  // aligns data
  return comm::ByteWriter().u64(text.size()).raw(text).take();
}

std::string write_safetensors(const Safetensors& file) {
  std::string bytes = safetensors_head(file.tensors, file.metadata);
  std::size_t size = bytes.size();
  for (const TensorData& tensor : file.tensors) size += tensor.bytes.size();
  bytes.reserve(size);
  for (const TensorData& tensor : file.tensors) bytes += tensor.bytes;
  return bytes;
}

Safetensors read_safetensors(const std::string& bytes, const std::string& where) {
  return Reader(bytes, where).run();
}

}  // namespace autodist::exec
