// Reads a descriptor, or an input of a tool, to its end, with a limit.
#pragma once

#include <string>
#include <vector>

#include "base/strong.h"

namespace fo::os {

/// All bytes up to the end. `what` is the action: "read 'path'". Throws with the errno's status,
/// and kBadData for more than `limit`.
std::string read_all(int fd, const std::string& what, base::ByteCount limit);

/// The input's name in messages; "-" is standard input.
std::string input_name(const std::string& file);

/// The input's content. Throws what read_file and read_all throw.
std::string read_input(const std::string& file, base::ByteCount limit);

/// Throws Error(kUsage) if standard input is named more than once.
void check_inputs(const std::vector<std::string>& files);

}  // namespace fo::os
