#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "cli/screen/output.h"
#include "commands.h"
#include "fleet/record/deployment_hash.h"
#include "os/file/input.h"
#include "pod/dgd/dgd.h"
#include "yaml/reader.h"

namespace fo::fo_reg {
namespace {

// Appends the deployments of a document, which may be a list of objects.
void find_deployments(const yaml::Node& document, std::vector<const yaml::Node*>& found) {
  if (pod::is_dgd(document)) found.push_back(&document);
  if (document.text_at({"kind"}) != "List") return;
  for (const yaml::Node& item : document.items_at({"items"})) find_deployments(item, found);
}

void print(const fleet::DeploymentIds& ids, bool json) {
  for (const auto& [service, id] : ids.services) {
    const std::string text = fleet::to_string(id);
    if (!json) {
      cli::print(text + "  " + base::without_controls(service) + "\n");
      continue;
    }
    const nlohmann::ordered_json line{
        {"deployment", ids.deployment}, {"hash", ids.hash}, {"service", service}, {"id", text}};
    cli::print(line.dump() + "\n");
  }
}

}  // namespace

base::ExitStatus id(const Options& options) {
  os::check_inputs(options.files);
  constexpr yaml::ReadLimits kLimits;
  std::vector<fleet::DeploymentIds> all;
  for (const std::string& file : options.files) {
    const std::string name = os::input_name(file);
    const auto documents = yaml::read_yaml(os::read_input(file, kLimits.bytes), name, kLimits);
    std::vector<const yaml::Node*> found;
    for (const yaml::Document& document : documents) find_deployments(document.root, found);
    if (found.empty()) {
      throw base::Error(base::ExitStatus::kBadData,
                        "read " + base::quoted(name) + ": no DynamoGraphDeployment in it");
    }
    for (const yaml::Node* dgd : found) {
      all.push_back(fleet::deployment_ids(*dgd, options.endpoint, name));
    }
  }
  for (const fleet::DeploymentIds& ids : all) print(ids, options.common.json);
  return base::ExitStatus::kOk;
}

}  // namespace fo::fo_reg
