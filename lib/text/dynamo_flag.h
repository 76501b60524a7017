// How Dynamo reads an environment variable that is on or off. Pure.
#pragma once

#include <array>
#include <string_view>

#include "text/ascii.h"

namespace fo::text {

/// Whether Dynamo's options (env_or_default in components/src/dynamo/common/configuration/utils.py)
/// read the value as true. They read every other value as false.
inline bool is_on_for_dynamo(std::string_view value) {
  constexpr std::array<std::string_view, 4> kOn{"true", "1", "yes", "on"};
  return is_one_of(lower(value), kOn);
}

}  // namespace fo::text
