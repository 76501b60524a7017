// Instances of a registry by their id or host, for commands that change several records.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "fleet/registry/registry.h"

namespace fo::fleet {

/// Exactly one of the two is set.
struct Selection {
  std::string id = {};
  std::string host = {};
};

/// The selected records of instances. Invalid records are left out, with a warning in the log.
boost::asio::awaitable<std::vector<Record>> find_instances(Registry& registry, Selection selection,
                                                           base::Deadline deadline);

/// Edits each selected record. Returns the number of records that were edited.
boost::asio::awaitable<std::size_t> edit_instances(Registry& registry, Selection selection,
                                                   Edit edit, base::Deadline deadline);

}  // namespace fo::fleet
