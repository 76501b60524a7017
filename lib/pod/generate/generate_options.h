// How a pod is generated, as words: the same on a command line and in a KRM function's config.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "pod/generate/generate.h"

namespace fo::pod {

/// "layout", "kube-version" … in the order in which a help text shows them.
const std::vector<std::string>& option_names();

/// Sets one option by its name, without dashes before it. Throws Error(kUsage): "layout 'x': wants
/// plan or dynamo". What has no value on a command line takes "true" and "false".
void set_option(GenerateOptions& options, std::string_view name, const std::string& value);

}  // namespace fo::pod
