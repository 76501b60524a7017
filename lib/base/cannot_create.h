// How a file, a folder or a socket that can't be made is reported.
#pragma once

#include <string>

namespace fo::base {

/// Throws Error with the reason of `err`: kNotPermitted where that is the reason, else
/// kCannotCreate.
[[noreturn]] void throw_cannot_create(int err, const std::string& what);

}  // namespace fo::base
