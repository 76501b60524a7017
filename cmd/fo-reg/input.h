// The files that fo-reg reads; "-" is standard input.
#pragma once

#include <string>

#include "base/strong.h"

namespace fo::fo_reg {

/// The name of a file in messages.
std::string input_name(const std::string& file);

/// Its content. Throws Error(kNoInput …); kBadData if it is longer than `limit`.
std::string read_input(const std::string& file, base::ByteCount limit);

}  // namespace fo::fo_reg
