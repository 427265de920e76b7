// A visitor of a variant made of one lambda per alternative.

#pragma once

namespace autodist {

template <typename... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <typename... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

}  // namespace autodist
