// Reports a file, folder or socket that cannot be created.
#pragma once

#include <string>

namespace fo::base {

/// Throws Error with the reason of `err` and kNotPermitted for a permission error, else
/// kCannotCreate.
[[noreturn]] void throw_cannot_create(int err, const std::string& what);

}  // namespace fo::base
