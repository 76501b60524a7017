// model.safetensors.index.json of a Hugging Face folder: which tensor is in which file. Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/strong.h"

namespace fo::weights {

inline constexpr base::ByteCount kMaxIndex = 100'000'000;

/// File name by tensor name, from the index's `weight_map`. `file` is a name for messages. Throws
/// Error(kBadData) for what is not JSON, has no weight_map, names a tensor twice, or names a file
/// by anything but a plain name: such a path could leave the folder.
std::map<std::string, std::string> parse_model_index(std::string_view text,
                                                     const std::string& file);

}  // namespace fo::weights
