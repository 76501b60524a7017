#include <nlohmann/json.hpp>

#include "cli/output.h"
#include "commands.h"
#include "sources.h"

namespace fo::fo_podgen {
namespace {

const char* word(pod::Severity severity) {
  return severity == pod::Severity::kError ? "error" : "warning";
}

std::string to_json(const pod::Finding& finding, const std::string& file) {
  return nlohmann::ordered_json{{"severity", word(finding.severity)},
                                {"file", file},
                                {"line", finding.position.line},
                                {"column", finding.position.column},
                                {"path", finding.path},
                                {"reason", finding.reason},
                                {"remedy", finding.remedy}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

base::ExitStatus check(const Options& options) {
  bool failed = false;
  pod::Budget budget;
  for (const std::string& file : options.files) {
    const Source source = read_source(file);
    const pod::Filtered filtered = filter(source, options.generate, budget);
    for (const pod::Finding& finding : filtered.findings) {
      cli::print(options.common.json
                     ? to_json(finding, source.name) + "\n"
                     : pod::format(finding, source.name) + " (" + word(finding.severity) + ")\n");
    }
    failed = failed || filtered.failed();
  }
  return failed ? base::ExitStatus::kBadData : base::ExitStatus::kOk;
}

}  // namespace fo::fo_podgen
