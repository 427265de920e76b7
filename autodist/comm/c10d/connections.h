// Connections of a library that has no call to end them.

#pragma once

#include <sys/types.h>

#include <vector>

namespace autodist::comm {

// The sockets of this process that are connected, as they are now.
class Connections {
 public:
  static Connections now();

  // Without those that `before` has, too. The rest are what was connected since then: by whoever it
  // was, so a library's are those from just before it connects to just after.
  [[nodiscard]] Connections since(const Connections& before) const;

  // Nothing comes or goes by them any more: whoever waits gets an error, here and at the other end.
  // They stay open, and their numbers whose they are. One that was closed before is left alone; one
  // that another thread closes at this very moment may be taken for whoever has its number next.
  void shut_down() const;

 private:
  struct Socket {
    int descriptor = -1;
    ino_t number = 0;  // of one socket alone, where a descriptor may be another's later
  };
  std::vector<Socket> sockets_;
};

}  // namespace autodist::comm
