#include "pod/shared_memory.h"

#include <algorithm>
#include <utility>

namespace fo::pod {
namespace {

constexpr std::string_view kPath = "/dev/shm";
constexpr std::string_view kStandardSize = "8Gi";

bool is_there(const Node& mount) {
  const std::string& path = mount.text_at({"mountPath"});
  return path == kPath || path == std::string(kPath) + "/";
}

bool mounts(const Node& container, const std::string& volume) {
  return find_named(container.find("volumeMounts"), "name", volume) != nullptr;
}

}  // namespace

const Node* shared_memory_mount(const Node& container) {
  const Node* all = container.find("volumeMounts");
  if (all == nullptr) return nullptr;
  const auto found = std::find_if(all->items().begin(), all->items().end(), is_there);
  return found == all->items().end() ? nullptr : &*found;
}

std::string remove_shared_memory(Node& pod_spec, Node& container) {
  const Node* mount = shared_memory_mount(container);
  if (mount == nullptr) return "";
  std::string volume = mount->text_at({"name"});
  std::erase_if(container["volumeMounts"].items(), is_there);
  bool is_used = mounts(container, volume);
  for (const char* const list : {"containers", "initContainers"}) {
    const Node* others = pod_spec.find(list);
    if (others == nullptr) continue;
    for (const Node& other : others->items()) {
      // The container itself may still stand there as it was.
      const bool is_itself = other.text_at({"name"}) == container.text_at({"name"});
      is_used = is_used || (!is_itself && mounts(other, volume));
    }
  }
  Node* volumes = pod_spec.find("volumes");
  if (!is_used && volumes != nullptr) {
    std::erase_if(volumes->items(),
                  [&volume](const Node& one) { return one.text_at({"name"}) == volume; });
  }
  return volume;
}

void add_shared_memory(Node& pod_spec, Node& container, const Node* size) {
  Node source = Node::map({{"medium", Node::string("Memory")}});
  source.set("sizeLimit", size != nullptr ? *size : Node::string(std::string(kStandardSize)));
  pod_spec["volumes"].push_back(Node::map(
      {{"name", Node::string(std::string(kSharedMemoryVolume))}, {"emptyDir", std::move(source)}}));
  container["volumeMounts"].push_back(
      Node::map({{"name", Node::string(std::string(kSharedMemoryVolume))},
                 {"mountPath", Node::string(std::string(kPath))}}));
}

}  // namespace fo::pod
