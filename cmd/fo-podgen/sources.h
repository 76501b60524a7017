// The files that fo-podgen reads.
#pragma once

#include <string>
#include <vector>

#include "pod/filter.h"
#include "pod/generate.h"
#include "pod/yaml_reader.h"

namespace fo::fo_podgen {

struct Source {
  /// For messages.
  std::string name;
  std::string text;
  std::vector<pod::Document> documents;
};

/// "-" is stdin. Throws Error(kNoInput, kBadData …).
Source read_source(const std::string& file);

/// Whether it is the input of a KRM function.
bool is_function_input(const Source& source);

/// What it becomes; of a function's input, what its items become.
pod::Filtered filter(const Source& source, const pod::GenerateOptions& options,
                     pod::Budget& budget);

}  // namespace fo::fo_podgen
