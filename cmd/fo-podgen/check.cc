#include <nlohmann/json.hpp>
#include <string>

#include "cli/screen/output.h"
#include "commands.h"
#include "sources.h"

namespace fo::fo_podgen {
namespace {

using Json = nlohmann::ordered_json;

const char* word(pod::Severity severity) {
  return severity == pod::Severity::kError ? "error" : "warning";
}

void print_findings(const pod::Findings& findings, const std::string& file) {
  for (const pod::Finding& finding : findings) {
    cli::print(pod::format(finding, file) + " (" + word(finding.severity) + ")\n");
  }
}

// The result for a service, in a few words.
std::string outcome(const pod::ServiceExplanation& service) {
  if (service.refused) return "refused";
  return service.failover ? "becomes a failover pod" : "stays with Dynamo's operator";
}

void print_text(const pod::DgdExplanation& dgd, const std::string& file) {
  cli::print_line(file + ": DynamoGraphDeployment " + dgd.name +
                  (dgd.name_space.empty() ? "" : " in " + dgd.name_space));
  print_findings(dgd.findings, file);
  for (const pod::ServiceExplanation& service : dgd.services) {
    cli::print_line("Service " + service.name +
                    (service.component_type.empty() ? "" : " (" + service.component_type + ")") +
                    ": " + outcome(service));
    for (const std::string& line : service.writes) cli::print_line("  writes " + line);
    for (const std::string& line : service.needs) cli::print_line("  needs " + line);
    print_findings(service.findings, file);
  }
}

void print_json_line(const Json& object) {
  cli::print_line(object.dump(-1, ' ', false, Json::error_handler_t::replace));
}

Json to_json(const pod::Findings& findings) {
  Json all = Json::array();
  for (const pod::Finding& finding : findings) {
    all.push_back(Json{{"severity", word(finding.severity)},
                       {"line", finding.position.line},
                       {"column", finding.position.column},
                       {"path", finding.path},
                       {"reason", finding.reason},
                       {"remedy", finding.remedy}});
  }
  return all;
}

void print_json(const pod::DgdExplanation& dgd, const std::string& file) {
  Json services = Json::array();
  for (const pod::ServiceExplanation& service : dgd.services) {
    services.push_back(Json{{"name", service.name},
                            {"type", service.component_type},
                            {"failover", service.failover},
                            {"refused", service.refused},
                            {"writes", service.writes},
                            {"needs", service.needs},
                            {"findings", to_json(service.findings)}});
  }
  const Json line{{"file", file},
                  {"deployment", dgd.name},
                  {"namespace", dgd.name_space},
                  {"services", std::move(services)},
                  {"findings", to_json(dgd.findings)}};
  print_json_line(line);
}

// Prints the findings that belong to no deployment.
void print_others(const pod::Findings& findings, const std::string& file, bool json) {
  if (!json) {
    print_findings(findings, file);
  } else if (!findings.empty()) {
    print_json_line(Json{{"file", file}, {"findings", to_json(findings)}});
  }
}

}  // namespace

base::ExitStatus check(const Options& options) {
  bool failed = false;
  pod::Budget budget;
  const std::vector<Source> sources = read_sources(options.files);
  const auto objects = objects_of(sources);
  for (const Source& source : sources) {
    const pod::Filtered filtered = filter(source, objects, options.generate, budget);
    print_others(filtered.others, source.name, options.common.json);
    for (const pod::DgdExplanation& dgd : filtered.explanations) {
      if (options.common.json) {
        print_json(dgd, source.name);
      } else {
        print_text(dgd, source.name);
      }
    }
    failed = failed || filtered.failed() || (options.strict && !filtered.findings.empty());
  }
  return failed ? base::ExitStatus::kBadData : base::ExitStatus::kOk;
}

}  // namespace fo::fo_podgen
