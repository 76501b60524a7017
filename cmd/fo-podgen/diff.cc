#include <nlohmann/json.hpp>
#include <optional>

#include "cli/screen/output.h"
#include "commands.h"
#include "os/file/input.h"
#include "os/log.h"
#include "pod/manifest.h"
#include "sources.h"

namespace fo::fo_podgen {
namespace {

// The objects that generate would write for a file; nullopt, and a report on stderr, if the input
// is refused.
std::optional<std::vector<yaml::Node>> output_of(const std::string& file, const Options& options) {
  const std::vector<Source> sources = read_sources({file});
  const Source& source = sources.front();
  pod::Budget budget;
  const pod::Filtered filtered = filter(source, objects_of(sources), options.generate, budget);
  for (const pod::Finding& finding : filtered.findings) {
    if (finding.severity == pod::Severity::kError) {
      os::log_line(os::LogLevel::kError, pod::format(finding, source.name));
    }
  }
  if (filtered.failed()) return std::nullopt;
  std::vector<yaml::Node> nodes;
  for (const pod::Manifest& one : filtered.manifests) nodes.push_back(one.root);
  return nodes;
}

}  // namespace

base::ExitStatus diff(const Options& options) {
  os::check_inputs({options.before, options.after});
  const auto before = output_of(options.before, options);
  const auto after = output_of(options.after, options);
  if (!before || !after) return base::ExitStatus::kBadData;
  const auto lines = pod::differences(*before, *after);
  for (const std::string& line : lines) {
    cli::print((options.common.json ? nlohmann::json(line).dump() : line) + "\n");
  }
  return lines.empty() ? base::ExitStatus::kOk : base::ExitStatus::kNo;
}

}  // namespace fo::fo_podgen
