// Manifests: a parsed document keeps its meaning when it is written and parsed again, as YAML, as
// JSON, and from its source text.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fuzz.h"
#include "yaml/reader.h"
#include "yaml/scalar.h"
#include "yaml/writer.h"

namespace {

using fo::fuzz::require;
using fo::yaml::Document;
using fo::yaml::Node;

std::vector<Document> read(std::string_view text) {
  // Small limits, so that short inputs reach them.
  const fo::yaml::ReadLimits limits{.bytes = 1 << 20, .documents = 50, .depth = 40, .nodes = 5'000};
  return fo::yaml::read_yaml(text, "f", limits);
}

Node read_one(const std::string& text) {
  std::vector<Document> documents = read(text);
  require(documents.size() <= 1, "one document is written as one");
  return documents.empty() ? Node() : std::move(documents.front().root);
}

// YAML readers search only 1024 characters for a key's colon; JSON has no such limit.
bool has_long_key(const Node& node) {
  constexpr std::size_t kLong = 1000;
  return std::any_of(node.items().begin(), node.items().end(), has_long_key) ||
         std::any_of(node.members().begin(), node.members().end(), [](const auto& member) {
           return fo::yaml::to_json_key(member).size() > kLong || has_long_key(member.value);
         });
}

void check(const Node& root) {
  const std::string json = fo::yaml::to_json(root);
  require(nlohmann::json::accept(json), "JSON is what others take for it");
  const std::string yaml = fo::yaml::to_yaml(root);
  const Node from_yaml = read_one(yaml);
  require(fo::yaml::to_json(from_yaml) == json, "YAML means what was read");
  require(fo::yaml::to_yaml(from_yaml) == yaml, "YAML is written as it was");
  if (has_long_key(root)) return;
  require(fo::yaml::to_json(read_one(json)) == json, "JSON means what was read");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto documents =
      fo::fuzz::unless_refused({fo::base::ExitStatus::kBadData}, [&] { return read(text); });
  if (!documents) return 0;
  std::string together;
  for (const Document& document : *documents) {
    require(document.source.ends_with('\n'), "a source ends with a newline");
    together += "---\n" + document.source;
    check(document.root);
  }
  const std::vector<Document> again = read(together);
  require(again.size() == documents->size(), "the sources are the documents");
  for (std::size_t i = 0; i < again.size(); ++i) {
    require(again[i].root.same_as((*documents)[i].root), "a source stands for its document");
    require(again[i].source == (*documents)[i].source, "a source is its own");
  }
  return 0;
}
