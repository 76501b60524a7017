// Allocates memory for data that an answer keeps for as long as its stream lasts.
#pragma once

#include <cstddef>

namespace fo::route {

/// Makes room for `more` elements of a vector or a string, and for an eighth of them all: to double
/// the capacity would leave up to half of the memory unused.
template <typename Container>
void make_room(Container& container, std::size_t more) {
  const std::size_t needed = container.size() + more;
  if (needed <= container.capacity()) return;
  // reserve() of a string that is not empty doubles it, too.
  Container larger;
  larger.reserve(needed + needed / 8);
  larger.insert(larger.end(), container.begin(), container.end());
  container.swap(larger);
}

}  // namespace fo::route
