// The files that fo-podgen reads.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pod/filter.h"
#include "pod/generate/generate.h"
#include "yaml/reader.h"

namespace fo::fo_podgen {

struct Source {
  /// For messages.
  std::string name;
  std::string text;
  std::vector<yaml::Document> documents;
};

/// "-" is stdin. Throws Error(kNoInput, kBadData …); kUsage if stdin is named twice.
Source read_source(const std::string& file);
std::vector<Source> read_sources(const std::vector<std::string>& files);

/// Whether it is the input of a KRM function.
bool is_function_input(const Source& source);

/// The objects of all of them.
std::shared_ptr<const pod::InputObjects> objects_of(const std::vector<Source>& sources);

/// The output for `source`, with the objects of all sources as `inputs`; for a function's input,
/// the output for its items, which is written separately.
pod::Filtered filter(const Source& source, const std::shared_ptr<const pod::InputObjects>& inputs,
                     const pod::GenerateOptions& options, pod::Budget& budget);

}  // namespace fo::fo_podgen
