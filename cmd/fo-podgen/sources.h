// The files that fo-podgen reads.
#pragma once

#include <string>
#include <vector>

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

}  // namespace fo::fo_podgen
