// The traces, read back by a reader that knows nothing but protobuf's wire format.

#include "autodist/report/chakra.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "autodist/ir/graph_builder.h"

namespace autodist::report {
namespace {

struct Reader {
  const std::string& bytes;
  std::size_t at = 0;

  bool done() const { return at >= bytes.size(); }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes.at(at++));
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
  }
  std::string chunk() {
    const std::uint64_t size = varint();
    std::string text = bytes.substr(at, size);
    EXPECT_EQ(text.size(), size);
    at += size;
    return text;
  }
};

struct Message {
  std::multimap<int, std::string> texts;
  std::multimap<int, std::uint64_t> numbers;

  explicit Message(const std::string& bytes) {
    Reader reader{bytes};
    while (!reader.done()) {
      const std::uint64_t tag = reader.varint();
      const int field = static_cast<int>(tag >> 3);
      if ((tag & 7) == 0) {
        numbers.emplace(field, reader.varint());
      } else {
        EXPECT_EQ(tag & 7, 2U);
        texts.emplace(field, reader.chunk());
      }
    }
  }
  [[nodiscard]] std::map<std::string, std::uint64_t> attributes() const {
    std::map<std::string, std::uint64_t> all;
    for (auto [it, end] = texts.equal_range(10); it != end; ++it) {
      const Message attribute(it->second);
      const auto number = attribute.numbers.begin();
      all[attribute.texts.find(1)->second] = number == attribute.numbers.end() ? 0 : number->second;
    }
    return all;
  }
};

// x * w, its gradient on two ranks; rank 0 owns it.
program::Program program() {
  ir::GraphBuilder step("step");
  const auto x = step.input("x", ir::contiguous({ir::batch(), 4}));
  const auto w = step.variable("w", ir::contiguous({4, 4}), {ir::Rule::kSgd, {{"lr", 0.1}}, ""});
  const auto y = step.op("aten::mm", {x, w}, ir::contiguous({ir::batch(), 4}));
  step.output(y);
  step.backward();
  step.gradient(w, step.op("aten::mm", {x, y}, ir::contiguous({4, 4})));
  program::Program program;
  program.graph = std::make_shared<const ir::Graph>(step.finish());
  program.ranks = {{"a", "a:CPU:0", 0}, {"b", "b:CPU:0", 1}};
  program.shards = {{ir::VariableId(0), "w", 0, 0, 4, 16}};
  program::Slice slice;
  slice.pieces = {{program::ShardId(0), 0, 16}};
  slice.members = {program::Rank(0), program::Rank(1)};
  program.slices = {slice};
  program.variables = {{{program::SliceId(0)}, {}, {}}};
  return program;
}

std::vector<Message> read(const std::string& trace) {
  std::vector<Message> messages;
  Reader reader{trace};
  while (!reader.done()) messages.emplace_back(reader.chunk());
  return messages;
}

TEST(Chakra, HoldsOpsTransfersAndWhatTheyNeed) {
  const std::vector<Seconds> ops{Seconds(1e-3), Seconds(2.5e-6)};
  const std::vector<Message> member = read(chakra_trace(program(), program::Rank(1), ops));
  ASSERT_EQ(member.size(), 5U) << "metadata, two ops, a send, a receive";
  EXPECT_EQ(member[0].texts.find(1)->second, "0.0.4");
  EXPECT_EQ(member[1].numbers.find(3)->second, 4U) << "COMP_NODE";
  EXPECT_EQ(member[1].numbers.find(7)->second, 1000U) << "microseconds";
  EXPECT_EQ(member[2].attributes().at("autodist.duration_ns"), 2500U);
  const auto send = member[3].attributes();
  EXPECT_EQ(member[3].numbers.find(3)->second, 5U);
  EXPECT_EQ(send.at("comm_size"), 64U);
  EXPECT_EQ(send.at("comm_src"), 1U);
  EXPECT_EQ(send.at("comm_dst"), 0U);
  EXPECT_EQ(member[3].texts.find(5)->second, std::string(1, 2)) << "after the gradient's op, 2";
  EXPECT_EQ(member[4].numbers.find(3)->second, 6U);
}

// Every message that one rank sends another receives, with the same tag and size.
TEST(Chakra, RanksAgree) {
  std::set<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t>> sent;
  auto received = sent;
  const std::vector<Seconds> ops{Seconds{}, Seconds{}};
  for (const int rank : {0, 1}) {
    std::set<std::uint64_t> ids;
    const std::vector<Message> messages = read(chakra_trace(program(), program::Rank(rank), ops));
    for (std::size_t i = 1; i < messages.size(); ++i) {
      EXPECT_TRUE(ids.insert(messages[i].numbers.find(1)->second).second);
      const auto type = messages[i].numbers.find(3)->second;
      if (type != 5 && type != 6) continue;
      const auto a = messages[i].attributes();
      (type == 5 ? sent : received)
          .emplace(a.at("comm_src"), a.at("comm_dst"), a.at("comm_tag"), a.at("comm_size"));
    }
  }
  EXPECT_EQ(sent, received);
  EXPECT_EQ(sent.size(), 2U);
}

}  // namespace
}  // namespace autodist::report
