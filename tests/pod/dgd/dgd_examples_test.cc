// Compares with NVIDIA's own deployments and the definition of the resource, if available.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "os/file/file.h"
#include "pod/dgd/dgd.h"
#include "pod/dgd/pod_schema.h"
#include "support/must_run.h"
#include "tests/pod/dgd_text.h"

namespace fo::pod {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr base::ByteCount kMax = 16 * base::kMiB;

fs::path examples() {
  const char* set = std::getenv("FO_DGD_EXAMPLES");
  return set != nullptr ? fs::path(set) : fs::path(FO_SOURCE_DIR) / "../shared/dgd-examples";
}

TEST(DgdExamples, AreReadWithNothingToSay) {
  if (!fs::exists(examples())) FO_SKIP("dgd-examples", "no " + examples().string());
  std::size_t read_of_them = 0;
  std::vector<std::string> with_failover;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(examples())) {
    const fs::path& path = entry.path();
    if (path.extension() != ".yaml" || path.filename() == "crd.yaml") continue;
    for (const yaml::Document& document :
         yaml::read_yaml(os::read_file(path, kMax), path.filename())) {
      if (!is_dgd(document.root)) continue;
      ++read_of_them;
      Findings findings;
      const Dgd dgd = read_dgd(document.root, findings);
      EXPECT_THAT(lines(findings, Severity::kWarning), IsEmpty()) << path;
      if (path.filename() == "vllm-multinode-failover.yaml") {
        EXPECT_THAT(lines(findings, Severity::kError),
                    ElementsAre("spec.services.VllmDecodeWorker.multinode: failover is not "
                                "supported with multinode deployments; leave one of them out"));
        continue;
      }
      EXPECT_THAT(lines(findings, Severity::kError), IsEmpty()) << path;
      for (const Service& service : dgd.services) {
        if (!service.failover) continue;
        with_failover.push_back(dgd.name + "/" + service.name);
        EXPECT_EQ(service.gpus, 2);
      }
    }
  }
  EXPECT_GE(read_of_them, 20U);
  EXPECT_THAT(with_failover,
              ElementsAre("vllm-agg-failover/VllmWorker", "vllm-agg-failover/VllmWorker"));
}

std::set<std::string> names_of(std::string_view type) {
  std::set<std::string> names;
  for (const SchemaField& field : fields_of(type)) names.emplace(field.name);
  return names;
}

/// Whether the definition's type of a field agrees with ours.
bool agrees(const yaml::Node& property, std::string_view type) {
  const auto said = [&](const char* what) {
    const yaml::Node* kind = property.find("type");
    return kind != nullptr && kind->text() == what;
  };
  if (property.find("x-kubernetes-int-or-string") != nullptr)
    return type == "qty" || type == "port";
  if (type == "str") return said("string");
  if (type == "qty") return said("string");  // as gpu: "1" is
  if (type == "int") return said("integer");
  if (type == "bool") return said("boolean");
  if (type.starts_with('[')) return said("array");
  return said("object");
}

/// Compares every table with the properties of the definition, level by level.
class Comparison {
 public:
  void compare(const yaml::Node& definition, std::string_view type, const std::string& at) {
    const yaml::Node* properties = definition.find("properties");
    if (properties == nullptr || fields_of(type).empty()) return;
    std::set<std::string> defined;
    for (const yaml::Node::Member& member : properties->members()) defined.insert(member.key);
    std::set<std::string> known = names_of(type);
    // Newer than this definition.
    if (type == "GmsAlpha") known.erase("extraClientContainers");
    if (is_open(type)) {
      EXPECT_TRUE(std::includes(defined.begin(), defined.end(), known.begin(), known.end())) << at;
    } else {
      EXPECT_EQ(known, defined) << at;
    }
    ++compared_;
    for (const SchemaField& field : fields_of(type)) {
      const yaml::Node* property = properties->find(field.name);
      if (property == nullptr) continue;
      const std::string path = at + "." + std::string(field.name);
      EXPECT_TRUE(agrees(*property, field.type)) << path << ": " << field.type;
      std::string_view inner = field.type;
      while (property != nullptr && (inner.starts_with('[') || inner.starts_with('{'))) {
        property = property->find(inner.front() == '[' ? "items" : "additionalProperties");
        inner = inner.substr(1, inner.size() - 2);
      }
      if (property != nullptr) compare(*property, inner, path);
    }
  }
  [[nodiscard]] int compared() const { return compared_; }

 private:
  int compared_ = 0;
};

TEST(DgdExamples, TablesAreTheDefinitions) {
  const fs::path path = examples() / "crd.yaml";
  if (!fs::exists(path)) FO_SKIP("dgd-examples", "no " + path.string());
  const yaml::Node root = yaml::read_yaml(os::read_file(path, kMax), "crd.yaml").at(0).root;
  const yaml::Node* versions = root.find_path({"spec", "versions"});
  ASSERT_NE(versions, nullptr);
  const yaml::Node* spec =
      versions->items().at(0).find_path({"schema", "openAPIV3Schema", "properties", "spec"});
  ASSERT_NE(spec, nullptr);
  const yaml::Node* service = spec->find_path({"properties", "services", "additionalProperties"});
  ASSERT_NE(service, nullptr);
  Comparison comparison;
  comparison.compare(*spec, "DgdAlpha", "spec");
  comparison.compare(*service, "ServiceAlpha", "service");
  EXPECT_GT(comparison.compared(), 50);
}

}  // namespace
}  // namespace fo::pod
