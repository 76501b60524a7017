// Parses model.safetensors.index.json of a Hugging Face folder, which maps tensors to files. Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/strong.h"

namespace fo::weights {

inline constexpr base::ByteCount kMaxIndex = 100'000'000;

/// File name by tensor name, from the index's `weight_map`. `file` is a name for messages. Throws
/// Error(kBadData) if the text is not JSON or has no weight_map, for a duplicate tensor, and for a
/// file that is not a plain file name: such a path could leave the folder.
std::map<std::string, std::string> parse_model_index(std::string_view text,
                                                     const std::string& file);

}  // namespace fo::weights
