#include "autodist/program/words.h"

#include <optional>

namespace autodist::program {
namespace {

struct Words {
  const char* short_words = "";
  const char* reason = "";
};

constexpr Words kFetched{"rows fetched",
                         "Its gradient is sparse: rows that a batch touched go to the owner, and "
                         "those that the next one reads are fetched."};
constexpr Words kReturned{"rows returned",
                          "Its gradient is sparse: rows that a batch touched go to the owner, "
                          "which sends those that changed to all."};
constexpr Words kGathered{"rows to every replica",
                          "Its gradient is sparse: every replica gets the rows that a batch "
                          "touched."};
constexpr Words kAsked{"", "Ranks ask its owner for it before a step's first use."};
constexpr Words kFactors{"as two factors",
                         "Its gradient is a product: two factors travel in its place."};
constexpr Words kLibrary{"", "A library reduces it together with its group."};

std::optional<RowTransfer> transfer_of(const Exchange& exchange) {
  const auto* slices = std::get_if<Slices>(&exchange);
  const auto* rows = slices == nullptr ? nullptr : std::get_if<Rows>(&slices->payload);
  if (rows == nullptr) return std::nullopt;
  return rows->transfer;
}

Words words_of(const Exchange& exchange) {
  if (std::holds_alternative<Library>(exchange)) return kLibrary;
  const auto* slices = std::get_if<Slices>(&exchange);
  if (slices == nullptr) return {};
  if (std::holds_alternative<Factors>(slices->payload)) return kFactors;
  const auto* dense = std::get_if<Dense>(&slices->payload);
  if (dense != nullptr && dense->delivery == Delivery::kAsked) return kAsked;
  const std::optional<RowTransfer> transfer = transfer_of(exchange);
  if (!transfer) return {};
  switch (*transfer) {
    case RowTransfer::kFetch:
      return kFetched;
    case RowTransfer::kReturn:
      return kReturned;
    case RowTransfer::kGather:
      return kGathered;
  }
  return {};
}

}  // namespace

std::string short_words(const Exchange& exchange) { return words_of(exchange).short_words; }

std::string reason(const Exchange& exchange) { return words_of(exchange).reason; }

std::string rows_name(const Exchange& exchange) {
  const std::optional<RowTransfer> transfer = transfer_of(exchange);
  return transfer ? name_of(*transfer) : "";
}

}  // namespace autodist::program
