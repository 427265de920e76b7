#include "autodist/search/builders/builders.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>

#include "autodist/base/error.h"
#include "autodist/base/nearest.h"
#include "autodist/base/numbers.h"
#include "autodist/base/text.h"
#include "autodist/search/builders/algorithms.h"
#include "autodist/search/builders/parts.h"

namespace autodist::search {
namespace {

std::vector<std::string> names_of(const std::vector<std::pair<std::string, std::string>>& options) {
  std::vector<std::string> names;
  for (const auto& [name, value] : options) names.push_back(name);
  return names;
}

std::vector<std::string> names_of(const std::vector<Builder>& builders) {
  std::vector<std::string> names;
  for (const Builder& builder : builders) names.push_back(builder.name);
  return names;
}

// What counts only beside a certain value of another option.
struct Condition {
  const char* option;
  const char* other;
  const char* value;
};
constexpr Condition kConditions[] = {{"density", "compressor", "topk"},
                                     {"rank", "compressor", "powersgd"},
                                     {"warm_start", "compressor", "powersgd"},
                                     {"all_reduce_spec", "algorithm", "by_spec"}};

// As numbers where both are: 0.010 is 0.01.
bool are_equal(const std::string& a, const std::string& b) {
  const auto first = as_number<double>(a);
  const auto second = as_number<double>(b);
  return first && second ? *first == *second : a == b;
}

// Whether `word` is a value of the condition's other option. One that is not is refused later, with
// a message of its own, by what builds the strategy.
bool is_known(const Condition& condition, const std::string& word) {
  if (std::string_view(condition.other) == "compressor") return is_compressor(word);
  return std::any_of(std::begin(strategy::kAllReduceAlgorithms),
                     std::end(strategy::kAllReduceAlgorithms),
                     [&](strategy::AllReduceAlgorithm each) { return name_of(each) == word; });
}

// AutoDist's classes name every option, so one that is at its default asks for nothing. `named`:
// the options that the specification has.
void refuse_without_effect(const Builder& builder, const BuilderOptions& options,
                           const std::set<std::string>& named) {
  const BuilderOptions defaults(builder.options.begin(), builder.options.end());
  for (const Condition& each : kConditions) {
    const auto given = options.find(each.option);
    const auto other = options.find(each.other);
    if (given == options.end() || other == options.end() || other->second == each.value) continue;
    if (are_equal(given->second, defaults.at(each.option))) continue;
    if (!is_known(each, other->second)) continue;
    fail(ErrorCode::kUsage,
         "builder {}: {}={} counts with {}={} alone, and that is {}. {} {}={}, or leave {} out.",
         builder.name, each.option, given->second, each.other, each.value, other->second,
         named.count(each.other) > 0 ? "Set" : "Add", each.other, each.value, each.option);
  }
}

const Builder& find_builder(const std::string& name, const std::vector<Builder>& own) {
  // Whoever can search has taken the word before it comes here.
  const std::string search = "auto";
  if (name == search) {
    fail(ErrorCode::kUsage,
         "builder: '{}' searches, which has no options behind a colon and is not everywhere. "
         "Give what it takes beside it; or take a builder: {}",
         name, fmt::join(names_of(builders()), ", "));
  }
  std::vector<std::string> names{search};
  for (const std::vector<Builder>* table : {&own, &builders()}) {
    for (const Builder& builder : *table) {
      if (builder.name == name) return builder;
      names.push_back(builder.name);
    }
  }
  fail(ErrorCode::kUsage, "builder: '{}' is unknown, one of {} expected{}", name,
       fmt::join(names, ", "), nearest_hint(name, names));
}

// "key=value,…" over the builder's defaults.
BuilderOptions parse_options(const Builder& builder, const std::string& text) {
  BuilderOptions options(builder.options.begin(), builder.options.end());
  std::set<std::string> given;
  for (const std::string& item : split(text, ',')) {
    const std::size_t equals = item.find('=');
    const std::string key = item.substr(0, equals);
    if (equals == std::string::npos && options.count(key) > 0) {
      fail(ErrorCode::kUsage, "builder {}: '{}' has no value. Write {}={}, say.", builder.name, key,
           key, options.at(key));
    }
    if (equals == std::string::npos || options.count(key) == 0) {
      const std::vector<std::string> known = names_of(builder.options);
      fail(ErrorCode::kUsage, "builder {}: '{}': one of {} as key=value expected{}", builder.name,
           item, fmt::join(known, ", "), nearest_hint(key, known));
    }
    if (!given.insert(key).second) {
      fail(ErrorCode::kUsage, "builder {}: the option '{}' stands twice. Keep one.", builder.name,
           key);
    }
    options[key] = item.substr(equals + 1);
  }
  const auto& ours = builders();
  const bool is_ours =
      std::any_of(ours.begin(), ours.end(), [&](const Builder& each) { return &each == &builder; });
  if (is_ours) refuse_without_effect(builder, options, given);
  return options;
}

using Options = std::vector<std::pair<std::string, std::string>>;

Options operator+(Options options, const Options& more) {
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

const Options kCompressor{{"compressor", "NoneCompressor"}, {"density", "0.01"}};
const Options kPs{
    {"local_proxy_variable", "false"}, {"sync", "true"}, {"staleness", "0"}, {"results", "pushed"}};
const Options kChunk{{"chunk_size", "128"}};
const Options kAlgorithm{{"algorithm", "by_spec"},
                         {"update_at", "every_rank"},
                         {"rank", "2"},  // this and warm_start: of compressor=powersgd
                         {"warm_start", "true"}};
const Options kCap{{"max_shards", "0"}};  // 0: AutoDist's rule, however many shards it gives

}  // namespace

const std::vector<Builder>& builders() {
  static const std::vector<Builder> table{
      {"PS", "every variable on the first CPU device", kPs + kCompressor, build_ps},
      {"PSLoadBalancing", "each variable whole, on the server with the fewest bytes so far",
       kPs + kCompressor, build_ps_load_balancing},
      {"PartitionedPS",
       "each variable in as many shards as its first dimension's least divisor, over "
       "the servers in order of load",
       kPs + kCap + kCompressor, build_partitioned_ps},
      {"UnevenPartitionedPS",
       "like PartitionedPS, in the least number of shards that does not divide",
       kPs + kCap + kCompressor, build_uneven_partitioned_ps},
      {"AllReduce", "all-reduce, chunk_size variables to a group",
       kChunk + Options{{"all_reduce_spec", "NCCL"}} + kCompressor + kAlgorithm, build_all_reduce},
      {"PartitionedAR", "shards as PartitionedPS, each all-reduced; groups count shards",
       kChunk + kAlgorithm + kCap + kCompressor, build_partitioned_all_reduce},
      {"RandomAxisPartitionAR",
       "like PartitionedAR, along an axis drawn at random (the first where the gradient is sparse)",
       kChunk + kAlgorithm + kCap + kCompressor + Options{{"seed", "0"}},
       build_random_axis_partition_all_reduce},
      {"Parallax",
       "dense variables as AllReduce, sparse ones as PSLoadBalancing without proxy "
       "(local_proxy_variable is taken for AutoDist's sake)",
       kChunk + kPs + kCompressor + kAlgorithm, build_parallax},
      {"BytePS",
       "shards of at most partition_bytes, over the servers so that all links carry the same; "
       "nodes that only serve take more",
       Options{{"partition_bytes", "4096000"}} + kCompressor, build_byteps},
      {"P3", "shards of at most slice_parameters, dealt out to the servers in turn",
       Options{{"slice_parameters", "50000"}} + kCompressor, build_p3},
      {"DDP-like",
       "all-reduce in buckets, the last variables first: PyTorch's DDP's, as AutoDist runs it",
       Options{{"bucket_mib", "25"}, {"first_bucket_mib", "1"}} + kAlgorithm + kCompressor,
       build_ddp_like},
      {"Horovod-like",
       "all-reduce of what a cycle made ready, as far as a fusion buffer takes it: Horovod's, as "
       "AutoDist runs it",
       Options{{"fusion_mib", "128"}, {"cycle_ms", "1"}} + kAlgorithm + kCompressor,
       build_horovod_like},
  };
  return table;
}

strategy::Strategy build_strategy(const std::string& specification, const ir::Graph& graph,
                                  const cluster::Cluster& cluster,
                                  const std::vector<Builder>& own) {
  const std::size_t colon = specification.find(':');
  const std::string name = specification.substr(0, colon);
  const Builder& builder = find_builder(name, own);
  const std::string options = colon == std::string::npos ? "" : specification.substr(colon + 1);
  try {
    return builder.build(graph, cluster, parse_options(builder, options));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {  // of a user's own: a number that is none, say
    fail(ErrorCode::kUsage, "builder {}: {}", specification, error.what());
  }
}

std::string shown_name(const std::string& specification) {
  const std::string name = specification.substr(0, specification.find(':'));
  return name.size() > 5 && name.ends_with("-like") ? specification + " (as AutoDist runs it)"
                                                    : specification;
}

}  // namespace autodist::search
