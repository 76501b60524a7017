#include "pod/generate/shared_memory.h"

#include <algorithm>
#include <utility>

namespace fo::pod {
namespace {

constexpr std::string_view kPath = "/dev/shm";
constexpr std::string_view kStandardSize = "8Gi";

bool is_there(const yaml::Node& mount) {
  const std::string& path = mount.text_at({"mountPath"});
  return path == kPath || path == std::string(kPath) + "/";
}

bool mounts(const yaml::Node& container, const std::string& volume) {
  return yaml::find_named(container.find("volumeMounts"), "name", volume) != nullptr;
}

}  // namespace

const yaml::Node* shared_memory_mount(const yaml::Node& container) {
  const std::vector<yaml::Node>& all = container.items_at({"volumeMounts"});
  const auto found = std::find_if(all.begin(), all.end(), is_there);
  return found == all.end() ? nullptr : &*found;
}

std::string remove_shared_memory(yaml::Node& pod_spec, yaml::Node& container) {
  const yaml::Node* mount = shared_memory_mount(container);
  if (mount == nullptr) return "";
  std::string volume = mount->text_at({"name"});
  std::erase_if(container["volumeMounts"].items(), is_there);
  bool is_used = mounts(container, volume);
  for (const char* const list : {"containers", "initContainers"}) {
    for (const yaml::Node& other : pod_spec.items_at({list})) {
      // The list may still contain the original of the container itself.
      const bool is_itself = other.text_at({"name"}) == container.text_at({"name"});
      is_used = is_used || (!is_itself && mounts(other, volume));
    }
  }
  yaml::Node* volumes = pod_spec.find("volumes");
  if (!is_used && volumes != nullptr) {
    std::erase_if(volumes->items(),
                  [&volume](const yaml::Node& one) { return one.text_at({"name"}) == volume; });
  }
  return volume;
}

void add_shared_memory(yaml::Node& pod_spec, yaml::Node& container, const yaml::Node* size) {
  yaml::Node source = yaml::Node::map({{"medium", yaml::Node::string("Memory")}});
  source.set("sizeLimit", size != nullptr ? *size : yaml::Node::string(std::string(kStandardSize)));
  pod_spec["volumes"].push_back(
      yaml::Node::map({{"name", yaml::Node::string(std::string(kSharedMemoryVolume))},
                       {"emptyDir", std::move(source)}}));
  container["volumeMounts"].push_back(
      yaml::Node::map({{"name", yaml::Node::string(std::string(kSharedMemoryVolume))},
                       {"mountPath", yaml::Node::string(std::string(kPath))}}));
}

}  // namespace fo::pod
