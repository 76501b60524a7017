#include "pod/gms_container.h"

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "pod/engine_container.h"

namespace fo::pod {
namespace {

// What engines look for.
constexpr std::string_view kTags = "weights,kv_cache";

// Of the main container, as far as who runs what is concerned.
Node start_container(std::string_view name, const Node& main) {
  Node container = Node::map({{"name", Node::string(std::string(name))}});
  for (const char* const key : {"image", "imagePullPolicy"}) {
    if (const Node* value = main.find(key)) container.set(key, *value);
  }
  return container;
}

void finish_container(Node& container, const Node& main) {
  if (const Node* value = main.find("securityContext")) container.set("securityContext", *value);
}

// Of a container that needs nothing but its user's files.
void finish_plain_container(Node& container, const Node& main) {
  const Node* own = main.find("securityContext");
  if (own == nullptr) return;
  Node context = Node::map();
  for (const char* const key :
       {"runAsUser", "runAsGroup", "runAsNonRoot", "seccompProfile", "seLinuxOptions"}) {
    if (const Node* value = own->find(key)) context.set(key, *value);
  }
  context.set("allowPrivilegeEscalation", Node::boolean(false));
  context.set("capabilities", Node::map({{"drop", Node::strings({"ALL"})}}));
  container.set("securityContext", std::move(context));
}

Node exec_probe(Node command, int period, int failures) {
  return Node::map({{"exec", Node::map({{"command", std::move(command)}})},
                    {"periodSeconds", Node::integer(period)},
                    // A second for what is asked, the rest for a node under load to start it.
                    {"timeoutSeconds", Node::integer(5)},
                    {"failureThreshold", Node::integer(failures)}});
}

void mount_tools(Node& container, const PodPlan& plan) {
  if (!plan.has_tools()) return;
  mount_volume(container, plan, "", kToolsVolume, kToolsFolder, true);
}

// Whether there is a socket of each tag for each GPU, whose UUID is in the name.
Node upstream_check(const PodPlan& plan) {
  const std::string script = "for tag in weights kv_cache; do set -- " + plan.names.folder +
                             "/gms_*_$tag.sock; test $# -ge " + std::to_string(plan.service.gpus) +
                             " || exit 1; for socket do test -S \"$socket\" || exit 1; done; done";
  return Node::strings({"sh", "-c", script});
}

}  // namespace

GmsProgram choose_gms(const Node& main, const EngineCommand& command, const PodPlan& plan) {
  const GenerateOptions& options = plan.options;
  if (options.gms) return *options.gms;
  const EngineProgram program = command.program();
  // What runs a program of the toolkit has the others, too.
  if (plan.has_tools() || program == EngineProgram::kRefEngine ||
      command.waiter().kind != EngineWaiter::Kind::kNone) {
    return GmsProgram::kOurs;
  }
  const bool needs_ours = options.supervise || options.lock == LockKind::kLockd;
  const bool is_dynamo = program == EngineProgram::kDynamoVllm ||
                         program == EngineProgram::kDynamo ||
                         (program == EngineProgram::kUnknown && options.engine == "dynamo");
  if (is_dynamo && !needs_ours) return GmsProgram::kUpstream;
  const Node* image = main.find("image");
  plan.refuse((image == nullptr ? main : *image).position(), plan.main_path("image"),
              std::string(options.supervise ? "fo-shadow and gms-serve are" : "gms-serve is") +
                  " not known to be in it: no image but this toolkit's has it",
              "say --tools-image IMAGE, or --gms ours where this image has the tools, too");
  return GmsProgram::kOurs;
}

Node make_gms_container(const Node& main, const PodPlan& plan) {
  const std::string& folder = plan.names.folder;
  const bool is_ours = plan.gms == GmsProgram::kOurs;
  Node container = start_container(plan.names.gms_container, main);
  container.set("restartPolicy", Node::string("Always"));
  if (is_ours) {
    container.set("command", Node::strings({plan.program("gms-serve")}));
    // Those of the claim, also where a node shows it more.
    container.set("args", Node::strings({"--socket-dir", folder, "--devices", plan.device_list(),
                                         "--tags", std::string(kTags)}));
  } else {
    // It serves both tags of all devices that it sees, in the folder that GMS_SOCKET_DIR names.
    container.set("command", Node::strings({"python3", "-m", "gpu_memory_service.cli.server"}));
  }
  add_gms_access(container, plan, "");
  if (is_ours) mount_tools(container, plan);
  if (!plan.is_dynamo()) {
    // Dynamo's GMS has other names for its sockets than gms-probe(1) looks for.
    Node check =
        is_ours ? Node::strings({plan.program("gms-probe"), "sockets", "--socket-dir", folder,
                                 "--devices", plan.device_list(), "--tags", std::string(kTags)})
                : upstream_check(plan);
    container.set("startupProbe", exec_probe(std::move(check), 2, 150));
  }
  finish_container(container, main);
  return container;
}

Node make_lockd_container(const Node& main, const PodPlan& plan) {
  Node container = start_container(kLockdContainer, main);
  container.set("restartPolicy", Node::string("Always"));
  container.set("command", Node::strings({plan.program("gms-lockd")}));
  container.set("args", Node::strings({"--socket", plan.lockd_socket()}));
  mount_volume(container, plan, "", plan.names.volume, plan.names.folder, false);
  mount_tools(container, plan);
  container.set(
      "startupProbe",
      exec_probe(Node::strings({plan.program("gms-probe"), "lock", "--lock", plan.lock_uri()}), 1,
                 60));
  finish_plain_container(container, main);
  return container;
}

Node make_tools_container(const Node& main, const PodPlan& plan) {
  Node container =
      Node::map({{"name", Node::string(std::string(kToolsContainer))},
                 {"image", Node::string(plan.options.tools_image)},
                 {"command", Node::strings({"fo-podgen", "install", std::string(kToolsFolder)})}});
  mount_volume(container, plan, "", kToolsVolume, kToolsFolder, false);
  finish_plain_container(container, main);
  return container;
}

}  // namespace fo::pod
