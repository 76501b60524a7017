#include <algorithm>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "cli/output.h"
#include "commands.h"
#include "os/file.h"
#include "os/log.h"
#include "pod/filter.h"
#include "pod/krm_function.h"
#include "pod/manifest.h"
#include "pod/writer.h"
#include "sources.h"

namespace fo::fo_podgen {
namespace {

using base::Error;
using base::ExitStatus;
using Format = Options::Format;

struct Output {
  std::vector<pod::Manifest> manifests;
  /// Of the files that nothing was changed in, as they are.
  std::string verbatim;
  bool is_verbatim = true;
};

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
      throw Error(ExitStatus::kNoInput, "write " + base::quoted(selector) + ": there is none");
    }
  }
}

void say(bool is_error, const std::string& text) {
  os::log(is_error ? os::LogLevel::kError : os::LogLevel::kWarning, "{}", text);
}

std::string to_text(const pod::Manifest& manifest) {
  return manifest.source.empty() ? pod::to_yaml(manifest.root) : manifest.source;
}

// Every document but the first of all after a line that divides.
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
    text = pod::to_json(manifests[0].root);
  } else {
    pod::Node list = pod::Node::map();
    list.set("apiVersion", pod::Node::string("v1"));
    list.set("kind", pod::Node::string("List"));
    pod::Node& items = list.set("items", pod::Node::list());
    for (const pod::Manifest& one : manifests) items.push_back(one.root);
    text = pod::to_json(list);
  }
  return text;
}

void write_files(const std::vector<pod::Manifest>& manifests, const Options& options) {
  const bool json = options.format == Format::kJson;
  std::map<std::string, const pod::Manifest*> files;
  for (const pod::Manifest& one : manifests) {
    const std::string name = pod::manifest_file_name(one.root, json ? ".json" : ".yaml");
    if (!files.emplace(name, &one).second) {
      throw Error(ExitStatus::kBadData, "write " + base::quoted(options.output_dir + "/" + name) +
                                            ": two objects of that kind and name");
    }
  }
  std::error_code error;
  std::filesystem::create_directories(options.output_dir, error);
  if (error) {
    throw Error(ExitStatus::kCannotCreate, "create " + base::quoted(options.output_dir), error);
  }
  for (const auto& [name, manifest] : files) {
    const std::string path = options.output_dir + "/" + name;
    os::write_file_atomic(path, json ? pod::to_json(manifest->root) : to_text(*manifest));
    if (options.format == Format::kName) cli::print(pod::kubectl_name(manifest->root) + "\n");
  }
}

void add(Output& output, const Source& source, const Options& options, bool& failed) {
  pod::Filtered filtered = pod::filter(source.name, source.documents, options.generate);
  for (const pod::Finding& finding : filtered.findings) {
    say(finding.severity == pod::Severity::kError, pod::format(finding, source.name));
  }
  failed = failed || filtered.failed();
  if (filtered.untouched() && !source.documents.empty()) {
    append(output.verbatim, source.text);
    if (!output.verbatim.ends_with('\n')) output.verbatim += '\n';
  } else {
    output.is_verbatim = false;
  }
  for (pod::Manifest& one : filtered.manifests) output.manifests.push_back(std::move(one));
}

ExitStatus run_function(const Source& source, const Options& options) {
  const pod::FunctionAnswer answer = pod::run_function(source.documents[0].root, options.generate);
  cli::print(options.format == Format::kJson ? pod::to_json(answer.list)
                                             : pod::to_yaml(answer.list));
  const pod::Node* results = answer.list.find("results");
  for (const pod::Node& result : results == nullptr ? std::vector<pod::Node>() : results->items()) {
    const pod::Node* field = result.find_path({"field", "path"});
    say(result.find("severity")->text() == "error",
        (field == nullptr ? "" : field->text() + ": ") + result.find("message")->text());
  }
  return answer.failed ? ExitStatus::kBadData : ExitStatus::kOk;
}

}  // namespace

ExitStatus generate(const Options& options) {
  Output output;
  bool failed = false;
  for (const std::string& file : options.files) {
    const Source source = read_source(file);
    if (source.documents.size() == 1 && pod::is_resource_list(source.documents[0].root)) {
      return run_function(source, options);
    }
    add(output, source, options, failed);
  }
  if (failed) return ExitStatus::kBadData;
  check_selectors(output.manifests, options);
  std::erase_if(output.manifests, [&](const auto& one) { return !wanted(one, options); });
  if (!options.output_dir.empty()) {
    write_files(output.manifests, options);
  } else if (output.is_verbatim && options.format == Format::kYaml && options.only.empty() &&
             !options.generated_only) {
    cli::print(output.verbatim);
  } else {
    cli::print(format(output.manifests, options.format));
  }
  return ExitStatus::kOk;
}

}  // namespace fo::fo_podgen
