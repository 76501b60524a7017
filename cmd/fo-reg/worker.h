// A worker's record and card, from the command line.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "fleet/record/instance.h"
#include "fleet/registry/registry.h"
#include "record_options.h"

namespace fo::fo_reg {

/// Parses NAME=VALUE. Throws Error(kUsage).
std::pair<std::string, std::string> read_label(const std::string& text);

struct Worker {
  fleet::Record record;
  /// The card that the record names.
  std::optional<fleet::Record> card;
};

/// The worker's record with this life. Throws kUsage for missing or invalid options, and what
/// reading the card throws.
Worker read_worker(const RecordOptions& options, fleet::Life life);

}  // namespace fo::fo_reg
