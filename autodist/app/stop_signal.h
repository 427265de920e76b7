// SIGINT, SIGTERM and SIGHUP (a terminal that was closed; it stays ignored where it is, as by nohup) as
// a wish to end in order: a flag that whoever works looks at.
//
// A signal that comes a second later or more ends the process as usual; sooner it is the same wish
// once more (timeout(1) sends each signal to the process and to its group).

#pragma once

#include <atomic>

namespace autodist::app {

// From here on the signals set the flag, which lives as long as the process.
const std::atomic<bool>& watch_stop_signals();

}  // namespace autodist::app
