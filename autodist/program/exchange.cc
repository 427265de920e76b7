#include "autodist/program/exchange.h"

#include <fmt/format.h>

namespace autodist::program {
namespace {

std::string codec(const char* key, const Compression& compression) {
  if (compression.codec == Codec::kNone) return "";
  return fmt::format(" {}={}", key, to_string(compression));
}

std::string text_of(const Dense& dense) {
  const std::string route =
      dense.route == Route::kDirect ? "" : fmt::format(" route={}", name_of(dense.route));
  return "dense" + route + codec("up", dense.up) + codec("down", dense.down) +
         (dense.delivery == Delivery::kAsked ? " asked" : "");
}
std::string text_of(const Rows& rows) { return "rows=" + name_of(rows.transfer); }
std::string text_of(const Factors& /*factors*/) { return "factors"; }
std::string text_of(const Versions& versions) {
  const std::string lag =
      versions.staleness == 0 ? "" : fmt::format(" staleness={}", versions.staleness);
  return "update=" + name_of(versions.update_at) + lag;
}
std::string text_of(const Asynchronous& /*order*/) { return "asynchronous"; }
std::string text_of(const Slices& slices) {
  const auto text = [](const auto& each) { return text_of(each); };
  return std::visit(text, slices.payload) + " " + std::visit(text, slices.order);
}
std::string text_of(const Library& library) { return "library" + codec("codec", library.codec); }
std::string text_of(const Alone& /*alone*/) { return "alone"; }

}  // namespace

std::string name_of(Route route) {
  switch (route) {
    case Route::kDirect:
      return "direct";
    case Route::kProxies:
      return "proxies";
    case Route::kNodes:
      return "nodes";
    case Route::kTree:
      return "tree";
    case Route::kRing:
      return "ring";
  }
  return "";
}

std::string name_of(RowTransfer transfer) {
  switch (transfer) {
    case RowTransfer::kFetch:
      return "fetch";
    case RowTransfer::kReturn:
      return "return";
    case RowTransfer::kGather:
      return "gather";
  }
  return "";
}

std::string name_of(UpdateAt at) { return at == UpdateAt::kOwner ? "owner" : "every_rank"; }

std::string name_of(Delivery delivery) { return delivery == Delivery::kAsked ? "asked" : "pushed"; }

std::string to_string(const Exchange& exchange) {
  return std::visit([](const auto& each) { return text_of(each); }, exchange);
}

}  // namespace autodist::program
