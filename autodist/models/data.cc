#include "autodist/models/data.h"

#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <random>
#include <regex>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/models/digits_file.h"

namespace autodist::models {
namespace {

constexpr std::int64_t kDigits = 1797;
constexpr std::int64_t kPixels = 64;
constexpr double kWhite = 16;  // the largest grey value

std::string unzip(const unsigned char* bytes, std::size_t size) {
  z_stream stream{};
  constexpr int kGzip = 16;
  AD_CHECK(inflateInit2(&stream, MAX_WBITS + kGzip) == Z_OK);
  std::string text(1 << 20, '\0');
  stream.next_in = const_cast<unsigned char*>(bytes);
  stream.avail_in = static_cast<unsigned>(size);
  stream.next_out = reinterpret_cast<unsigned char*>(text.data());
  stream.avail_out = static_cast<unsigned>(text.size());
  const int result = inflate(&stream, Z_FINISH);
  inflateEnd(&stream);
  AD_CHECK(result == Z_STREAM_END) << "the embedded digits do not unpack: " << result;
  text.resize(stream.total_out);
  return text;
}

std::vector<int> numbers_of(const std::string& text) {
  std::vector<int> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    int value = 0;
    const auto parsed = std::from_chars(at, end, value);
    if (parsed.ec == std::errc()) {
      numbers.push_back(value);
      at = parsed.ptr;
    } else {
      ++at;  // a comma or a line's end
    }
  }
  return numbers;
}

// A shuffle that is the same with every standard library.
std::vector<std::int64_t> permutation(std::int64_t count, std::uint32_t seed) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::mt19937 random(seed);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  return order;
}

// What a NumPy file says of itself. Format: numpy.lib.format, versions 1 to 3.
struct NpyHeader {
  std::string descr;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
  std::size_t data_begin = 0;
};

NpyHeader npy_header(const std::string& bytes, const std::string& path) {
  const auto refuse = [&](const std::string& why) {
    fail(ErrorCode::kUsage, "{}: not a NumPy file: {}. Write it with numpy.save.", path, why);
  };
  if (bytes.size() < 12 || bytes.compare(0, 6, "\x93NUMPY") != 0) refuse("no such beginning");
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(bytes[at]); };
  const bool long_header = byte(6) >= 2;
  std::size_t length = byte(8) + 256u * byte(9);
  if (long_header)
    length +=
        (static_cast<std::size_t>(byte(10)) << 16) + (static_cast<std::size_t>(byte(11)) << 24);
  NpyHeader header;
  const std::size_t begin = long_header ? 12 : 10;
  header.data_begin = begin + length;
  constexpr std::size_t kLongest = 4096;
  if (length > kLongest || header.data_begin > bytes.size()) refuse("its header does not end");
  const std::string text = bytes.substr(begin, length);
  static const std::regex kForm(
      "^\\{'descr': '([^']+)', 'fortran_order': (True|False), 'shape': \\(([0-9, ]*)\\), \\}\\s*$");
  std::smatch match;
  if (!std::regex_match(text, match, kForm)) refuse("its header is not understood: " + text);
  header.descr = match[1];
  header.fortran_order = match[2] == "True";
  const std::string shape = match[3];
  for (std::size_t at = 0; at < shape.size();) {
    std::int64_t size = 0;
    const auto parsed = std::from_chars(shape.data() + at, shape.data() + shape.size(), size);
    if (parsed.ec == std::errc::result_out_of_range) refuse("a size out of range");
    if (parsed.ec == std::errc()) header.shape.push_back(size);
    at = std::max<std::size_t>(at + 1, static_cast<std::size_t>(parsed.ptr - shape.data()));
  }
  return header;
}

torch::ScalarType npy_dtype(const std::string& descr, const std::string& path) {
  static const std::vector<std::pair<std::string, torch::ScalarType>> kKnown{
      {"<f4", torch::kFloat32}, {"<f8", torch::kFloat64}, {"<f2", torch::kFloat16},
      {"<i8", torch::kInt64},   {"<i4", torch::kInt32},   {"<i2", torch::kInt16},
      {"|i1", torch::kInt8},    {"|u1", torch::kUInt8},   {"|b1", torch::kBool}};
  for (const auto& [name, type] : kKnown) {
    if (name == descr) return type;
  }
  fail(ErrorCode::kUsage,
       "{}: element type '{}' cannot be used; one of <f4 <f8 <f2 <i8 <i4 <i2 |i1 |u1 |b1 expected. "
       "Convert it with astype.",
       path, descr);
}

torch::Tensor read_npy(const std::string& path, torch::ScalarType real) {
  const std::string bytes = read_file(path);
  const NpyHeader header = npy_header(bytes, path);
  if (header.fortran_order) {
    fail(ErrorCode::kUsage, "{}: Fortran order. Save numpy.ascontiguousarray of it.", path);
  }
  const torch::ScalarType type = npy_dtype(header.descr, path);
  const std::size_t have = bytes.size() - header.data_begin;
  std::size_t need = c10::elementSize(type);
  for (std::int64_t size : header.shape) {
    const bool fits = size == 0 || need <= have / static_cast<std::size_t>(size);
    if (!fits) {
      fail(ErrorCode::kUsage,
           "{}: truncated: shape ({}) of {}-byte elements, but {} bytes. Write it with numpy.save.",
           path, fmt::join(header.shape, ", "), c10::elementSize(type), have);
    }
    need *= static_cast<std::size_t>(size);
  }
  if (header.shape.empty() || header.shape.front() == 0) {
    fail(ErrorCode::kUsage,
         "{}: shape ({}) has no samples. Its first dimension counts them, 1 or more expected.",
         path, fmt::join(header.shape, ", "));
  }
  torch::Tensor tensor = torch::empty(header.shape, type);
  std::memcpy(tensor.data_ptr(), bytes.data() + header.data_begin, need);
  return tensor.to(c10::isFloatingType(type) ? real : torch::kInt64);
}

}  // namespace

Dataset::Dataset(Batch samples) : samples_(std::move(samples)) {
  AD_CHECK(!samples_.empty()) << "a data set without tensors";
  size_ = samples_.front().size(0);
}

Batch Dataset::batch(const std::vector<std::int64_t>& indices) const {
  const torch::Tensor rows = torch::tensor(indices, torch::kInt64);
  Batch result;
  for (const torch::Tensor& tensor : samples_) {
    result.push_back(tensor.size(0) == size_ ? tensor.index_select(0, rows) : tensor);
  }
  return result;
}

Digits digits(torch::ScalarType dtype) {
  const std::vector<int> numbers = numbers_of(unzip(kDigitsFile, kDigitsFileSize));
  AD_CHECK(numbers.size() == kDigits * (kPixels + 1)) << numbers.size() << " numbers";
  const torch::Tensor table = torch::tensor(numbers, torch::kInt64).view({kDigits, kPixels + 1});
  const Dataset all({table.slice(1, 0, kPixels).to(dtype).div(kWhite).view({kDigits, 1, 8, 8}),
                     table.select(1, kPixels).contiguous()});
  constexpr std::uint32_t kSplitSeed = 1;
  const std::vector<std::int64_t> order = permutation(kDigits, kSplitSeed);
  const auto cut = order.begin() + kDigits / 5;
  return {Dataset(all.batch({cut, order.end()})), Dataset(all.batch({order.begin(), cut}))};
}

Dataset read_directory(const std::string& directory, torch::ScalarType dtype) {
  namespace fs = std::filesystem;
  std::error_code unreadable;
  Batch samples;
  for (std::size_t i = 0;; ++i) {
    const fs::path path = fs::path(directory) / fmt::format("x{}.npy", i);
    if (!fs::exists(path)) break;
    samples.push_back(read_npy(path.string(), dtype));
    if (samples.back().size(0) != samples.front().size(0)) {
      fail(ErrorCode::kUsage, "{}: {} samples, but x0.npy has {}. Write as many into each.",
           path.string(), samples.back().size(0), samples.front().size(0));
    }
  }
  for (const auto& entry : fs::directory_iterator(
           directory, fs::directory_options::skip_permission_denied, unreadable)) {
    const std::string name = entry.path().filename().string();
    int number = -1;
    if (std::sscanf(name.c_str(), "x%d.npy", &number) != 1 || number < 0) continue;
    if (name != fmt::format("x{}.npy", number) || static_cast<std::size_t>(number) < samples.size())
      continue;
    fail(ErrorCode::kUsage, "--data {}: has {}, and no x{}.npy. Number them from 0, without a gap.",
         directory, name, samples.size());
  }
  if (samples.empty()) {
    fail(ErrorCode::kUsage,
         "--data {}: no x0.npy there. One NumPy file per tensor of the batch expected: x0.npy, "
         "x1.npy, …, first dimension = samples.",
         directory);
  }
  return Dataset(std::move(samples));
}

}  // namespace autodist::models
