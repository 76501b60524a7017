// The generator with arbitrary manifests: its output can be parsed, is the same for the same input,
// and is empty if anything is refused.
#include <string>
#include <vector>

#include "fuzz.h"
#include "pod/filter.h"
#include "pod/krm_function.h"
#include "pod/manifest.h"
#include "yaml/reader.h"
#include "yaml/writer.h"

namespace {

using fo::base::ExitStatus;
using fo::fuzz::require;
using namespace fo::pod;
using namespace fo::yaml;

GenerateOptions options_from(fo::fuzz::Input& input) {
  GenerateOptions options;
  const std::uint8_t bits = input.byte();
  if ((bits & 1) != 0) options.layout = PodLayout::kDynamo;
  if ((bits & 2) != 0) options.gpu_sharing = GpuSharing::kDevicePlugin;
  if ((bits & 4) != 0) options.lock = LockKind::kLockd;
  if ((bits & 8) != 0) options.gms = GmsProgram::kUpstream;
  if ((bits & 16) != 0) options.kind = WorkloadKind::kPod;
  if ((bits & 32) != 0) options.tools_image = "tools";
  options.supervise = (bits & 64) != 0;
  options.kube_version.minor = 31 + static_cast<int>(input.below(5));
  return options;
}

std::string text_of(const Filtered& filtered) {
  std::string text;
  for (const Manifest& one : filtered.manifests) text += "---\n" + to_yaml(one.root);
  return text;
}

void check(const std::vector<Document>& documents, const GenerateOptions& options) {
  Budget budget;
  const auto inputs = std::make_shared<InputObjects>();
  for (const Document& document : documents) inputs->add(document.root);
  const Filtered filtered = filter(documents, inputs, options, budget);
  for (const Finding& finding : filtered.findings) {
    require(format(finding, "f").find('\n') == std::string::npos, "a finding is one line");
  }
  if (documents.size() == 1 && is_resource_list(documents.front().root)) {
    Budget function_budget;
    static_cast<void>(to_json(run_function(documents.front().root, options, function_budget).list));
  }
  if (filtered.failed()) return;
  const std::string text = text_of(filtered);
  Budget same;
  require(text_of(filter(documents, inputs, options, same)) == text,
          "the same input, the same output");
  std::vector<Node> nodes;
  for (const Manifest& one : filtered.manifests) nodes.push_back(one.root);
  std::vector<Node> again;
  for (Document& one : read_yaml(text, "f")) again.push_back(std::move(one.root));
  require(differences(nodes, again).empty(), "what is written means what was made");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fo::fuzz::Input input(data, size);
  const GenerateOptions options = options_from(input);
  const ReadLimits limits{.bytes = 1 << 20, .documents = 50, .depth = 40, .nodes = 5'000};
  const auto documents = fo::fuzz::unless_refused(
      {ExitStatus::kBadData}, [&] { return read_yaml(input.rest(), "f", limits); });
  if (documents) check(*documents, options);
  return 0;
}
