// Keys and values that every rank sees, over the job's own transport: what a collectives library
// asks of a store while its ranks connect, without a server that listens anywhere.

#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "autodist/base/clock.h"
#include "autodist/base/units.h"
#include "autodist/comm/transport.h"

namespace autodist::comm {

// One thread, and no other use of the transport between construction and finish(). What comes for a
// later reader is given back to the transport by finish(), and by the destructor where it threw.
class SharedKeys {
 public:
  SharedKeys(Transport& transport, Seconds limit) : transport_(transport), limit_(limit) {}
  ~SharedKeys();
  SharedKeys(const SharedKeys&) = delete;
  SharedKeys& operator=(const SharedKeys&) = delete;

  // Tells every rank.
  void set(const std::string& key, const std::string& value);

  // True when some rank has set the key and we have heard of it.
  [[nodiscard]] bool has(const std::string& key) const { return values_.count(key) > 0; }

  // Waits until some rank has set the key. Throws Error(kPeersLost) naming the ranks that said
  // nothing, or the key, after the limit.
  const std::string& get(const std::string& key);

  // Waits until every rank has come here: no key is on its way any more. Throws as get.
  void finish();

 private:
  void tell_all(const Frame& frame);
  // Takes what comes next; false after the limit.
  bool take(Seconds until);
  [[noreturn]] void give_up(const std::string& what) const;

  Transport& transport_;
  Seconds limit_;
  SteadyClock clock_;
  std::map<std::string, std::string> values_;
  std::set<RankNumber> heard_;
  std::set<RankNumber> finished_;
  std::vector<Frame> later_;
};

}  // namespace autodist::comm
