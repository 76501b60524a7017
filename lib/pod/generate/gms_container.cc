#include "pod/generate/gms_container.h"

#include <string>
#include <string_view>
#include <utility>

#include "pod/engine/engine_container.h"

namespace fo::pod {
namespace {

// The tags that engines use.
constexpr std::string_view kTags = "weights,kv_cache";

// A container with the main container's image.
yaml::Node start_container(std::string_view name, const yaml::Node& main) {
  yaml::Node container = yaml::Node::map({{"name", yaml::Node::string(std::string(name))}});
  for (const char* const key : {"image", "imagePullPolicy"}) {
    if (const yaml::Node* value = main.find(key)) container.set(key, *value);
  }
  return container;
}

void finish_container(yaml::Node& container, const yaml::Node& main) {
  if (const yaml::Node* value = main.find("securityContext"))
    container.set("securityContext", *value);
}

// Gives a container that needs only the files of the main container's user this user and no
// privileges.
void finish_plain_container(yaml::Node& container, const yaml::Node& main) {
  const yaml::Node* own = main.find("securityContext");
  if (own == nullptr) return;
  yaml::Node context = yaml::Node::map();
  for (const char* const key :
       {"runAsUser", "runAsGroup", "runAsNonRoot", "seccompProfile", "seLinuxOptions"}) {
    if (const yaml::Node* value = own->find(key)) context.set(key, *value);
  }
  context.set("allowPrivilegeEscalation", yaml::Node::boolean(false));
  context.set("capabilities", yaml::Node::map({{"drop", yaml::Node::strings({"ALL"})}}));
  container.set("securityContext", std::move(context));
}

yaml::Node exec_probe(yaml::Node command, int period, int failures) {
  return yaml::Node::map({{"exec", yaml::Node::map({{"command", std::move(command)}})},
                          {"periodSeconds", yaml::Node::integer(period)},
                          // One second for the query, the rest to start it on a loaded node.
                          {"timeoutSeconds", yaml::Node::integer(5)},
                          {"failureThreshold", yaml::Node::integer(failures)}});
}

void mount_tools(yaml::Node& container, const PodPlan& plan) {
  if (!plan.has_tools()) return;
  mount_volume(container, plan, "", kToolsVolume, kToolsFolder, true);
}

// Checks that there is a socket of each tag for each GPU; its name contains the GPU's UUID.
yaml::Node upstream_check(const PodPlan& plan) {
  const std::string script = "for tag in weights kv_cache; do set -- " + plan.names.folder +
                             "/gms_*_$tag.sock; test $# -ge " + std::to_string(plan.service.gpus) +
                             " || exit 1; for socket do test -S \"$socket\" || exit 1; done; done";
  return yaml::Node::strings({"sh", "-c", script});
}

}  // namespace

GmsProgram choose_gms(const yaml::Node& main, const EngineCommand& command, const PodPlan& plan) {
  const GenerateOptions& options = plan.options;
  if (options.gms) return *options.gms;
  const EngineProgram program = command.program();
  // An image with one program of the toolkit has the others, too.
  if (plan.has_tools() || program == EngineProgram::kRefEngine ||
      command.waiter().kind != EngineWaiter::Kind::kNone) {
    return GmsProgram::kOurs;
  }
  const bool needs_ours = options.supervise || options.lock == LockKind::kLockd;
  const bool is_dynamo = is_dynamo_worker(program) ||
                         (program == EngineProgram::kUnknown && options.engine == "dynamo");
  if (is_dynamo && !needs_ours) return GmsProgram::kUpstream;
  const yaml::Node* image = main.find("image");
  plan.refuse((image == nullptr ? main : *image).position(), plan.main_path("image"),
              std::string(options.supervise ? "fo-shadow and gms-serve are" : "gms-serve is") +
                  " possibly missing in it: only this toolkit's image is known to have the tools",
              "use --tools-image IMAGE, or --gms ours where this image has the tools, too");
  return GmsProgram::kOurs;
}

yaml::Node make_gms_container(const yaml::Node& main, const PodPlan& plan) {
  const std::string& folder = plan.names.folder;
  const bool is_ours = plan.gms == GmsProgram::kOurs;
  yaml::Node container = start_container(plan.names.gms_container, main);
  container.set("restartPolicy", yaml::Node::string("Always"));
  if (is_ours) {
    container.set("command", yaml::Node::strings({plan.program("gms-serve")}));
    // The GMS serves only the devices of the claim, even if a node exposes more.
    container.set("args", yaml::Node::strings({"--socket-dir", folder, "--devices",
                                               plan.device_list(), "--tags", std::string(kTags)}));
  } else {
    // Dynamo's GMS serves both tags of all visible devices, in the folder GMS_SOCKET_DIR.
    container.set("command",
                  yaml::Node::strings({"python3", "-m", "gpu_memory_service.cli.server"}));
  }
  add_gms_access(container, plan, "");
  if (is_ours) mount_tools(container, plan);
  if (!plan.is_dynamo()) {
    // Dynamo's GMS names its sockets differently from what gms-probe(1) expects.
    yaml::Node check =
        is_ours
            ? yaml::Node::strings({plan.program("gms-probe"), "sockets", "--socket-dir", folder,
                                   "--devices", plan.device_list(), "--tags", std::string(kTags)})
            : upstream_check(plan);
    container.set("startupProbe", exec_probe(std::move(check), 2, 150));
  }
  finish_container(container, main);
  return container;
}

yaml::Node make_lockd_container(const yaml::Node& main, const PodPlan& plan) {
  yaml::Node container = start_container(kLockdContainer, main);
  container.set("restartPolicy", yaml::Node::string("Always"));
  container.set("command", yaml::Node::strings({plan.program("gms-lockd")}));
  container.set("args", yaml::Node::strings({"--socket", plan.lockd_socket()}));
  mount_volume(container, plan, "", plan.names.volume, plan.names.folder, false);
  mount_tools(container, plan);
  container.set("startupProbe", exec_probe(yaml::Node::strings({plan.program("gms-probe"), "lock",
                                                                "--lock", plan.lock_uri()}),
                                           1, 60));
  finish_plain_container(container, main);
  return container;
}

yaml::Node make_tools_container(const yaml::Node& main, const PodPlan& plan) {
  yaml::Node container = yaml::Node::map(
      {{"name", yaml::Node::string(std::string(kToolsContainer))},
       {"image", yaml::Node::string(plan.options.tools_image)},
       {"command", yaml::Node::strings({"fo-podgen", "install", std::string(kToolsFolder)})}});
  mount_volume(container, plan, "", kToolsVolume, kToolsFolder, false);
  finish_plain_container(container, main);
  return container;
}

}  // namespace fo::pod
