#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cli/screen/output.h"
#include "commands.h"
#include "os/file/file.h"
#include "os/log.h"
#include "pod/filter.h"
#include "pod/krm_function.h"
#include "pod/manifest.h"
#include "sources.h"
#include "yaml/writer.h"

namespace fo::fo_podgen {
namespace {

using base::Error;
using base::ExitStatus;
using Format = Options::Format;

bool wanted(const pod::Manifest& manifest, const Options& options) {
  if (options.generated_only && !manifest.generated) return false;
  return options.only.empty() ||
         std::any_of(options.only.begin(), options.only.end(), [&](const std::string& selector) {
           return pod::matches(manifest.root, selector);
         });
}

void check_selectors(const std::vector<pod::Manifest>& manifests, const Options& options) {
  for (const std::string& selector : options.only) {
    if (std::none_of(manifests.begin(), manifests.end(),
                     [&](const pod::Manifest& one) { return pod::matches(one.root, selector); })) {
      throw Error(ExitStatus::kNoInput,
                  "write " + base::quoted(selector) + ": --only matches no object");
    }
  }
}

std::string to_text(const pod::Manifest& manifest) {
  return manifest.source.empty() ? manifest.head + yaml::to_yaml(manifest.root) : manifest.source;
}

// Adds a separator line before every document except the first.
void append(std::string& text, const std::string& document) {
  if (!text.empty()) text += "---\n";
  text += document;
}

std::string format(const std::vector<pod::Manifest>& manifests, Format format) {
  std::string text;
  if (format == Format::kName) {
    for (const pod::Manifest& one : manifests) text += pod::kubectl_name(one.root) + "\n";
  } else if (format == Format::kYaml) {
    for (const pod::Manifest& one : manifests) append(text, to_text(one));
  } else if (manifests.size() == 1) {
    text = yaml::to_json(manifests[0].root);
  } else {
    yaml::Node list = yaml::Node::map();
    list.set("apiVersion", yaml::Node::string("v1"));
    list.set("kind", yaml::Node::string("List"));
    yaml::Node& items = list.set("items", yaml::Node::list());
    for (const pod::Manifest& one : manifests) items.push_back(one.root);
    text = yaml::to_json(list);
  }
  return text;
}

// The manifests by file path. The API group is added to a name that two manifests would have.
std::map<std::string, const pod::Manifest*> name_files(const std::vector<pod::Manifest>& manifests,
                                                       const Options& options) {
  const std::string extension = options.format == Format::kJson ? ".json" : ".yaml";
  std::map<std::string, int> count;
  for (const pod::Manifest& one : manifests) ++count[pod::manifest_file_name(one.root)];
  std::map<std::string, const pod::Manifest*> files;
  for (const pod::Manifest& one : manifests) {
    std::string name = pod::manifest_file_name(one.root);
    if (count[name] > 1) name = pod::manifest_file_name(one.root, pod::GroupInName::kYes);
    const std::string path = options.output_dir + "/" + name + extension;
    if (!files.emplace(path, &one).second) {
      throw Error(ExitStatus::kBadData,
                  "write " + base::quoted(path) + ": two objects have this file name");
    }
  }
  return files;
}

void write_files(const std::vector<pod::Manifest>& manifests, const Options& options) {
  const auto files = name_files(manifests, options);
  std::error_code error;
  std::filesystem::create_directories(options.output_dir, error);
  if (error) {
    throw Error(ExitStatus::kCannotCreate, "create " + base::quoted(options.output_dir), error);
  }
  for (const auto& [path, manifest] : files) {
    os::write_file_atomic(
        path, options.format == Format::kJson ? yaml::to_json(manifest->root) : to_text(*manifest));
    if (options.format == Format::kName) cli::print(pod::kubectl_name(manifest->root) + "\n");
  }
}

void say(const pod::Filtered& filtered, const Source& source) {
  for (const pod::Finding& finding : filtered.findings) {
    os::log(
        finding.severity == pod::Severity::kError ? os::LogLevel::kError : os::LogLevel::kWarning,
        "{}", pod::format(finding, source.name));
  }
}

ExitStatus run_function(const Source& source, const Options& options, pod::Budget& budget) {
  const bool chooses = options.format == Format::kName || !options.only.empty() ||
                       options.generated_only || !options.output_dir.empty();
  if (chooses || options.files.size() > 1) {
    throw Error(ExitStatus::kUsage,
                "read " + base::quoted(source.name) + ": a ResourceList has to be the only input");
  }
  const pod::FunctionAnswer answer =
      pod::run_function(source.documents[0].root, options.generate, budget);
  say(answer.filtered, source);
  cli::print(options.format == Format::kJson ? yaml::to_json(answer.list)
                                             : yaml::to_yaml(answer.list));
  return answer.filtered.failed() ? ExitStatus::kBadData : ExitStatus::kOk;
}

}  // namespace

ExitStatus generate(const Options& options) {
  std::vector<pod::Manifest> manifests;
  // The text of the only input file, if nothing in it changes.
  std::optional<std::string> verbatim;
  bool failed = false;
  pod::Budget budget;
  const std::vector<Source> sources = read_sources(options.files);
  const auto objects = objects_of(sources);
  for (const Source& source : sources) {
    if (is_function_input(source)) return run_function(source, options, budget);
    pod::Filtered filtered = filter(source, objects, options.generate, budget);
    say(filtered, source);
    failed = failed || filtered.failed();
    if (filtered.untouched() && options.files.size() == 1) verbatim = source.text;
    std::move(filtered.manifests.begin(), filtered.manifests.end(), std::back_inserter(manifests));
  }
  if (failed) return ExitStatus::kBadData;
  check_selectors(manifests, options);
  const bool all = options.only.empty() && !options.generated_only;
  std::erase_if(manifests, [&](const auto& one) { return !wanted(one, options); });
  if (!options.output_dir.empty()) {
    write_files(manifests, options);
  } else if (verbatim && all && options.format == Format::kYaml) {
    cli::print(*verbatim);
  } else {
    cli::print(format(manifests, options.format));
  }
  return ExitStatus::kOk;
}

}  // namespace fo::fo_podgen
