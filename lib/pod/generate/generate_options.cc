#include "pod/generate/generate_options.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <utility>
#include <vector>

#include "base/error.h"

namespace fo::pod {
namespace {

using base::Error;
using base::ExitStatus;
using Setter = std::function<bool(GenerateOptions&, const std::string&)>;

struct Option {
  std::string name;
  std::string wanted;
  Setter set;
};

template <typename Value>
Option choice(std::string name, Value GenerateOptions::*member,
              std::vector<std::pair<std::string, std::type_identity_t<Value>>> choices) {
  std::string wanted;
  for (const auto& [word, value] : choices) wanted += (wanted.empty() ? "" : " or ") + word;
  return {
      std::move(name), std::move(wanted),
      [member, choices = std::move(choices)](GenerateOptions& options, const std::string& text) {
        const auto found = std::find_if(choices.begin(), choices.end(),
                                        [&](const auto& one) { return one.first == text; });
        if (found == choices.end()) return false;
        options.*member = found->second;
        return true;
      }};
}

Option text(std::string name, std::string GenerateOptions::*member) {
  return {std::move(name), "a name", [member](GenerateOptions& options, const std::string& value) {
            options.*member = value;
            return !value.empty();
          }};
}

bool set_kube_version(GenerateOptions& options, const std::string& text) {
  KubeVersion version;
  const std::size_t from = text.starts_with('v') ? 1 : 0;
  const char* end = text.data() + text.size();
  const auto major = std::from_chars(text.data() + from, end, version.major);
  if (major.ec != std::errc() || major.ptr == end || *major.ptr != '.') return false;
  const auto minor = std::from_chars(major.ptr + 1, end, version.minor);
  if (minor.ec != std::errc() || version.major < 0 || version.minor < 0) return false;
  // A patch release may follow, or a "+", which some providers append.
  if (minor.ptr != end && *minor.ptr != '.' && *minor.ptr != '+') return false;
  options.kube_version = version;
  return true;
}

const std::vector<Option>& all_options() {
  static const std::vector<Option> kOptions = {
      choice("layout", &GenerateOptions::layout,
             {{"plan", PodLayout::kPlan}, {"dynamo", PodLayout::kDynamo}}),
      choice("kind", &GenerateOptions::kind,
             {{"deployment", WorkloadKind::kDeployment}, {"pod", WorkloadKind::kPod}}),
      {"kube-version", "MAJOR.MINOR", set_kube_version},
      choice("gpu-sharing", &GenerateOptions::gpu_sharing,
             {{"dra", GpuSharing::kDra}, {"device-plugin", GpuSharing::kDevicePlugin}}),
      choice("lock", &GenerateOptions::lock,
             {{"flock", LockKind::kFlock}, {"lockd", LockKind::kLockd}}),
      choice("gms", &GenerateOptions::gms,
             {{"ours", GmsProgram::kOurs}, {"upstream", GmsProgram::kUpstream}}),
      text("tools-image", &GenerateOptions::tools_image),
      choice("supervise", &GenerateOptions::supervise, {{"true", true}, {"false", false}}),
      choice("operator-defaults", &GenerateOptions::operator_defaults,
             {{"true", true}, {"false", false}}),
      choice("engine", &GenerateOptions::engine,
             {{"vllm", "vllm"}, {"sglang", "sglang"}, {"dynamo", "dynamo"}, {"cold", "cold"}}),
  };
  return kOptions;
}

}  // namespace

void set_option(GenerateOptions& options, std::string_view name, const std::string& value) {
  for (const Option& option : all_options()) {
    if (option.name != name) continue;
    if (option.set(options, value)) return;
    throw Error(ExitStatus::kUsage,
                option.name + " " + base::quoted(value) + ": expected " + option.wanted);
  }
  std::string known;
  for (const Option& one : all_options()) known += (known.empty() ? "" : ", ") + one.name;
  throw Error(ExitStatus::kUsage,
              base::quoted(name) + ": unknown option; the options are: " + known);
}

}  // namespace fo::pod
