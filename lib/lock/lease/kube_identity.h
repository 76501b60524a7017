// The id of a contender as a Lease in Kubernetes has it; pure.
#pragma once

#include <string>
#include <string_view>

namespace fo::lock {

/// The id in a Lease: with 16 random hexadecimal digits behind it, so that an engine that was
/// started anew does not take itself for the holder.
std::string make_identity(std::string_view id, std::string_view digits);
/// The id without these; another's identity whole. Without control characters.
std::string id_of_identity(std::string_view identity);

}  // namespace fo::lock
