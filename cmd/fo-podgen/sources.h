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

/// Reads a file, or stdin for "-". Throws Error(kNoInput, kBadData …).
Source read_source(const std::string& file);
/// Reads all files. Throws kUsage if stdin is named twice, and what read_source throws.
std::vector<Source> read_sources(const std::vector<std::string>& files);

/// Whether the source is the input of a KRM function, a single ResourceList.
bool is_function_input(const Source& source);

/// The objects of all sources, which the documents of any source may refer to.
std::shared_ptr<const pod::InputObjects> objects_of(const std::vector<Source>& sources);

/// The output for `source`, with the objects of all sources as `inputs`. For a function's input,
/// the output for its items.
pod::Filtered filter(const Source& source, const std::shared_ptr<const pod::InputObjects>& inputs,
                     const pod::GenerateOptions& options, pod::Budget& budget);

}  // namespace fo::fo_podgen
