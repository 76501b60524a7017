// The options of the generator by name, for the command line and for a KRM function's config.
#pragma once

#include <string>
#include <string_view>

#include "pod/generate/generate.h"

namespace fo::pod {

/// Sets one option by its name, without leading dashes. Throws Error(kUsage): "layout 'x': expected
/// plan or dynamo". Options without a value on the command line take "true" and "false".
void set_option(GenerateOptions& options, std::string_view name, const std::string& value);

}  // namespace fo::pod
