// Random identifiers, from getrandom(2).
#pragma once

#include <string>

namespace fo::os {

/// A random (version 4) UUID in its 36-character lower-case text form.
std::string make_uuid4();

}  // namespace fo::os
