// A registry of workers that are named only by their URLs. Its records never change. It is for
// trials.
#pragma once

#include <memory>
#include <string_view>

#include "fleet/registry/registry.h"

namespace fo::fleet {

/// `urls` are separated by commas. The workers' endpoint is "static/worker/generate", and their ids
/// are digests of their URLs. Throws kUsage for an invalid URL, and for one that appears twice.
std::unique_ptr<RecordReader> make_static_reader(std::string_view urls);

}  // namespace fo::fleet
