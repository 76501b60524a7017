// The id of a contender as a Lease in Kubernetes has it; pure.
#pragma once

#include <string>
#include <string_view>

namespace fo::lock {

/// The id in a Lease, followed by 16 random hexadecimal digits, so that a restarted engine does not
/// recognise itself as the holder.
std::string make_identity(std::string_view id, std::string_view digits);
/// The id without these digits; another identity unchanged. Without control characters.
std::string id_of_identity(std::string_view identity);

}  // namespace fo::lock
