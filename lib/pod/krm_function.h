// The filter as a KRM function: a ResourceList on stdin, a ResourceList on stdout, as kustomize and
// kpt call it.
#pragma once

#include "pod/filter.h"
#include "pod/generate/generate.h"
#include "yaml/node.h"

namespace fo::pod {

bool is_resource_list(const yaml::Node& document);

struct FunctionAnswer {
  /// The list with filtered items, and with the findings as `results`. If one of the findings is an
  /// error, the items are those of the input.
  yaml::Node list;
  /// The result of the filter for all items; the `source` of its manifests is not their text.
  Filtered filtered;
};

/// `options` are the defaults for the function's config (members of its `data` or `spec`, with the
/// names of generate_options.h). `budget` as in filter.h.
FunctionAnswer run_function(const yaml::Node& list, const GenerateOptions& options, Budget& budget);

}  // namespace fo::pod
