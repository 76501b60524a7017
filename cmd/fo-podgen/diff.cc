#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/output.h"
#include "commands.h"
#include "pod/filter.h"
#include "pod/manifest.h"
#include "sources.h"

namespace fo::fo_podgen {
namespace {

std::vector<pod::Node> output_of(const std::string& file, const Options& options) {
  const Source source = read_source(file);
  const pod::Filtered filtered = pod::filter(source.name, source.documents, options.generate);
  for (const pod::Finding& finding : filtered.findings) {
    if (finding.severity == pod::Severity::kError) {
      throw base::Error(base::ExitStatus::kBadData, pod::format(finding, source.name));
    }
  }
  std::vector<pod::Node> nodes;
  for (const pod::Manifest& one : filtered.manifests) nodes.push_back(one.root);
  return nodes;
}

}  // namespace

base::ExitStatus diff(const Options& options) {
  const auto lines =
      pod::differences(output_of(options.before, options), output_of(options.after, options));
  for (const std::string& line : lines) {
    cli::print((options.common.json ? nlohmann::json(line).dump() : line) + "\n");
  }
  return lines.empty() ? base::ExitStatus::kOk : base::ExitStatus::kNo;
}

}  // namespace fo::fo_podgen
