#include "cli/suggest.h"

#include "base/error.h"
#include "text/nearest_name.h"

namespace fo::cli {

std::string did_you_mean(std::string_view word, const std::vector<std::string>& known) {
  const auto nearest = text::nearest_name(word, {known.begin(), known.end()});
  return nearest ? "; did you mean " + base::quoted(*nearest) + "?" : "";
}

}  // namespace fo::cli
