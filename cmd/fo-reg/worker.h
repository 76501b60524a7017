// The record of a worker, from the command line.
#pragma once

#include <string>
#include <utility>

#include "fleet/instance.h"
#include "fleet/registry/registry.h"
#include "record_options.h"

namespace fo::fo_reg {

/// NAME=VALUE. Throws Error(kUsage).
std::pair<std::string, std::string> read_label(const std::string& text);

/// The worker's record with this life. A card is put into the registry, too; where that cannot be
/// reached now, it is left out with a warning. Throws kUsage for missing or invalid options, and
/// what reading the card throws.
fleet::Record worker_record(fleet::Registry& registry, const RecordOptions& options,
                            fleet::Life life);

}  // namespace fo::fo_reg
