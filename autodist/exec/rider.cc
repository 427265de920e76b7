#include "autodist/exec/rider.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/comm/bytes.h"

namespace autodist::exec {
namespace {

std::uint64_t bits_of(double value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

double double_of(std::uint64_t bits) {
  double value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Of the first option or value in which the two differ: what each of them says.
struct Difference {
  std::string what;
  std::string one;
  std::string other;
};

Difference difference_of(const ir::Variable& variable, const VariableNews& one,
                         const VariableNews& other) {
  const auto value_of = [&](const VariableNews& news, const std::string& option) {
    const auto found = news.options.find(option);
    return found == news.options.end() ? variable.update.options.at(option) : found->second;
  };
  for (const auto& [option, declared] : variable.update.options) {
    const double a = value_of(one, option);
    const double b = value_of(other, option);
    if (bits_of(a) == bits_of(b)) continue;
    return {fmt::format("{} of '{}'", option, variable.name), fmt::format("{}", a),
            fmt::format("{}", b)};
  }
  const auto changed = [](const VariableNews& news) {
    return news.values ? fmt::format("changed (digest {:016x})", *news.values)
                       : std::string("not changed");
  };
  return {fmt::format("'{}'", variable.name), changed(one), changed(other)};
}

}  // namespace

std::string encode(const Rider& rider) {
  if (rider.empty()) return "";
  comm::ByteWriter bytes;
  bytes.u32(static_cast<std::uint32_t>(rider.news.size())).raw(rider.news);
  bytes.u32(static_cast<std::uint32_t>(rider.sums.size()));
  for (const double sum : rider.sums) bytes.u64(bits_of(sum));
  return bytes.raw(rider.values).take();
}

Rider decode_rider(const std::string& bytes) {
  Rider rider;
  if (bytes.empty()) return rider;
  comm::ByteReader reader(bytes);
  rider.news = reader.raw(reader.u32());
  const std::size_t sums = reader.u32();
  AD_CHECK(reader.good() && sums <= reader.left() / sizeof(double))
      << "a rider of " << bytes.size() << " bytes";
  for (std::size_t i = 0; i < sums; ++i) rider.sums.push_back(double_of(reader.u64()));
  rider.values = reader.raw(reader.left());
  return rider;
}

std::string encode_news(const ir::Graph& graph, const News& news) {
  comm::ByteWriter bytes;
  bool any = false;
  for (const auto& [id, each] : news) {
    if (each.empty()) continue;
    any = true;
    const auto& declared = graph.variable(id).update.options;
    bytes.u32(id.value).u16(static_cast<std::uint16_t>(each.options.size()));
    for (const auto& [option, value] : each.options) {
      const auto place = std::distance(declared.begin(), declared.find(option));
      bytes.u16(static_cast<std::uint16_t>(place)).u64(bits_of(value));
    }
    bytes.u16(each.values ? 1 : 0).u64(each.values.value_or(0));
  }
  return any ? bytes.take() : "";
}

News decode_news(const ir::Graph& graph, const std::string& encoded) {
  News news;
  comm::ByteReader bytes(encoded);
  while (bytes.left() > 0) {
    const ir::VariableId id(bytes.u32());
    AD_CHECK(bytes.good() && id.value < graph.variables.size()) << "news of variable " << id;
    const auto& declared = graph.variable(id).update.options;
    VariableNews& each = news[id];
    for (std::uint16_t options = bytes.u16(); options > 0; --options) {
      const std::uint16_t place = bytes.u16();
      AD_CHECK(bytes.good() && place < declared.size()) << "option " << place;
      each.options[std::next(declared.begin(), place)->first] = double_of(bytes.u64());
    }
    const bool changed = bytes.u16() != 0;
    const std::uint64_t digest = bytes.u64();
    AD_CHECK(bytes.good()) << "news of " << encoded.size() << " bytes";
    if (changed) each.values = digest;
  }
  return news;
}

void check_agreement(const ir::Graph& graph, std::uint64_t step, const std::vector<Said>& said) {
  const auto differs = [&](const Said& each) { return *each.news != *said.front().news; };
  const auto first = std::find_if(said.begin(), said.end(), differs);
  if (first == said.end()) return;
  std::vector<std::string> ranks;
  for (const Said& each : said) {
    if (*each.news == *first->news) ranks.push_back(fmt::format("{}", each.rank));
  }
  News one = decode_news(graph, *said.front().news);
  News other = decode_news(graph, *first->news);
  News both = one;
  both.insert(other.begin(), other.end());
  for (const auto& [id, unused] : both) {
    if (one[id] == other[id]) continue;
    const Difference found = difference_of(graph.variable(id), one[id], other[id]);
    fail(ErrorCode::kUsage,
         "step {}: the ranks disagree: {} is {} at rank {}, {} at rank {}. Between two steps every "
         "rank sets and changes the same, by what is the same at all of them (the job's loss, what "
         "evaluate() returns).",
         step, found.what, found.one, said.front().rank, found.other, fmt::join(ranks, ", "));
  }
}

ir::UpdateRule rule_by(const ir::UpdateRule& declared, const VariableNews& news) {
  ir::UpdateRule rule = declared;
  for (const auto& [option, value] : news.options) rule.options.at(option) = value;
  return rule;
}

}  // namespace autodist::exec
