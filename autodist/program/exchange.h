// How a variable is exchanged between ranks, as types: what does not go together cannot be said.
//
// Two questions have answers of their own: what a contribution is (Payload), and in which order
// contributions become versions (Order). The few pairs that are not allowed stand in verify.cc.
// What an exchange carries and what work it is: program/loads.h.

#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "autodist/program/compression.h"

namespace autodist::program {

// Which links contributions take to the owner, and what it makes of them takes back
// (program/route.h). All routes carry the same bytes in all.
enum class Route : std::uint8_t {
  kDirect,   // every member to the owner, and back
  kProxies,  // straight to the owner; what comes back crosses to each node once, and is passed on
  kNodes,    // the members of a node meet at one of them, in both directions
  kTree,     // a binary tree with the owner at its root
  kRing,     // a chain from owner + 1 around to the owner, each adding its own; and back
};
std::string name_of(Route route);  // "direct", "proxies", "nodes", "tree", "ring"

// How results get to the members: sent as soon as they are made, or asked for by each member before
// a step's first use, so that nobody needs room for them before.
enum class Delivery : std::uint8_t { kPushed, kAsked };
inline constexpr Delivery kDeliveries[] = {Delivery::kPushed, Delivery::kAsked};
std::string name_of(Delivery delivery);  // "pushed", "asked"

// All elements of the slice.
struct Dense {
  Route route = Route::kDirect;
  Compression up = {};                    // of contributions
  Compression down = {};                  // of the averaged gradient, where every rank updates
  Delivery delivery = Delivery::kPushed;  // kAsked: of parameters, on the direct route

  friend bool operator==(const Dense& a, const Dense& b) {
    return a.route == b.route && a.up == b.up && a.down == b.down && a.delivery == b.delivery;
  }
};

// Where rows of a table travel (ir/rows.h).
enum class RowTransfer : std::uint8_t {
  kFetch,   // to the owner; a member asks it for the rows that its next batch reads
  kReturn,  // to the owner, which sends the rows that changed to every member
  kGather,  // to every member, each of which updates a copy of its own
};
std::string name_of(RowTransfer transfer);  // "fetch", "return", "gather"

// The rows that the step touched. The slice is a block of whole rows, updated by whoever sums.
struct Rows {
  RowTransfer transfer = RowTransfer::kReturn;

  friend bool operator==(const Rows& a, const Rows& b) { return a.transfer == b.transfer; }
};

// Two matrices whose product is the gradient of a whole variable. They go to every member, which
// multiplies and adds up for itself ("sufficient factor broadcasting", Xie et al., UAI 2016).
struct Factors {
  friend bool operator==(const Factors&, const Factors&) { return true; }
};

using Payload = std::variant<Dense, Rows, Factors>;

// Who applies the update rule: whoever sums the contributions (what comes back are parameters) or
// every rank (what comes back is the averaged gradient).
enum class UpdateAt : std::uint8_t { kOwner, kEveryRank };
inline constexpr UpdateAt kUpdatePlaces[] = {UpdateAt::kEveryRank, UpdateAt::kOwner};
std::string name_of(UpdateAt at);  // "owner", "every_rank"

// Step by step: a version holds the contributions of all members to the steps before it.
struct Versions {
  // Steps by which a gate may lag: at step k it opens from version k - staleness on. The owner sums
  // step by step all the same. Above 0 only where the owner updates.
  std::uint32_t staleness = 0;
  UpdateAt update_at = UpdateAt::kOwner;

  friend bool operator==(const Versions& a, const Versions& b) {
    return a.staleness == b.staleness && a.update_at == b.update_at;
  }
};

// The owner applies each contribution as it comes and answers its sender alone. No versions, no
// bound.
struct Asynchronous {
  friend bool operator==(const Asynchronous&, const Asynchronous&) { return true; }
};

using Order = std::variant<Versions, Asynchronous>;

// Over the project's own transport, in slices with an owner each.
struct Slices {
  Payload payload;
  Order order;

  friend bool operator==(const Slices& a, const Slices& b) {
    return a.payload == b.payload && a.order == b.order;
  }
};

// By a library's all-reduce over the concatenated gradients of a group. A codec of two factors
// (PowerSGD) makes two all-reduces of it; variables that it does not pay for (factor_rank) go with
// the first as they are.
struct Library {
  Compression codec = {};

  friend bool operator==(const Library& a, const Library& b) { return a.codec == b.codec; }
};

// Not at all: one rank trains it, or the step does not use it.
struct Alone {
  friend bool operator==(const Alone&, const Alone&) { return true; }
};

using Exchange = std::variant<Slices, Library, Alone>;

// As Programs print it: "dense route=ring up=fp16 update=owner staleness=2", "rows=fetch
// asynchronous", "factors update=every_rank", "library codec=powersgd(2)", "alone".
std::string to_string(const Exchange& exchange);

}  // namespace autodist::program
