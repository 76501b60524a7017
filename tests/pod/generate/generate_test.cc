#include "pod/generate/generate.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "pod/pod_fixture.h"
#include "yaml/writer.h"

namespace fo::pod {
namespace {

using test::Generated;
using test::kMainPath;
using test::node;
using test::words;
using test::Worker;

std::string pretty(const std::string& json, int indent = 1) {
  return nlohmann::ordered_json::parse(json).dump(indent);
}
std::string pretty(const yaml::Node& node, int indent = 1) { return pretty(to_json(node), indent); }

std::string names(const yaml::Node* list) {
  std::string text;
  if (list == nullptr) return "none";
  for (const yaml::Node& one : list->items()) {
    text += (text.empty() ? "" : "|") + one.find("name")->text();
  }
  return text;
}

GenerateOptions supervised() {
  GenerateOptions options;
  options.supervise = true;
  return options;
}

void keep_errors(Findings& findings) {
  std::erase_if(findings, [](const Finding& one) { return one.severity != Severity::kError; });
}

const char* const kVllm =
    R"("command":["vllm","serve","m","--enable-sleep-mode","--load-format","gms"],
       "args":["--worker-cls","gpu_memory_service.integrations.vllm.worker.GMSWorker"],
       "env":[{"name":"VLLM_SERVER_DEV_MODE","value":"1"}])";

// The example of the plan.
TEST(Generate, ThePlansPod) {
  const Worker worker{.main = R"("workingDir":"/w","command":["python3","-m","dynamo.vllm"],
    "args":["--model","Qwen/Qwen3-0.6B"],"resources":{"limits":{"nvidia.com/gpu":"1"}})"};
  GenerateOptions options;
  options.kind = WorkloadKind::kPod;
  const Generated made = worker.generate(options);
  ASSERT_EQ(made.errors(), "");
  ASSERT_EQ(made.manifests.size(), 2U);
  EXPECT_EQ(pretty(made.manifests[0]), pretty(R"({
    "apiVersion":"resource.k8s.io/v1","kind":"ResourceClaimTemplate",
    "metadata":{"name":"vllm-decode-gpu"},
    "spec":{"spec":{"devices":{"requests":[{"name":"gpus","exactly":{
      "deviceClassName":"gpu.nvidia.com","allocationMode":"ExactCount","count":1}}]}}}})"));
  const auto engine = [](const std::string& i) {
    return R"({"name":"engine-)" + i + R"(","image":"img","workingDir":"/w",
      "command":["python3","-m","dynamo.vllm"],
      "args":["--model","Qwen/Qwen3-0.6B","--load-format","gms")" +
           (i == "0" ? "" : R"(,"--master-port","29600")") + R"(],
      "resources":{"claims":[{"name":"shared-gpu"}]},
      "volumeMounts":[{"name":"failover-shared","mountPath":"/shared"}],
      "env":[{"name":"ENGINE_ID","value":")" +
           i + R"("},{"name":"GMS_SOCKET_DIR","value":"/shared"},
        {"name":"FAILOVER_LOCK_PATH","value":"/shared/failover.lock"},
        {"name":"DYN_SYSTEM_STARTING_HEALTH_STATUS","value":"notready"},
        {"name":"DYN_SYSTEM_ENABLED","value":"true"},
        {"name":"DYN_SYSTEM_PORT","value":"909)" +
           i + R"("},{"name":"DYN_VLLM_GMS_SHADOW_MODE","value":"true"},
        {"name":"CUDA_DEVICE_ORDER","value":"PCI_BUS_ID"},
        {"name":"VLLM_NIXL_SIDE_CHANNEL_PORT","value":"560)" +
           i + R"("},{"name":"DYN_VLLM_KV_EVENT_PORT","value":"2008)" + i +
           R"("},{"name":"DYN_FORWARDPASS_METRIC_PORT","value":"2038)" + i +
           R"("},{"name":"NIXL_TELEMETRY_PROMETHEUS_PORT","value":"1909)" + i + R"("}],
      "ports":[{"name":"system-)" +
           i + R"(","containerPort":909)" + i + R"(,"protocol":"TCP"}],
      "startupProbe":{"httpGet":{"path":"/live","port":"system-)" +
           i + R"("},"periodSeconds":10,"timeoutSeconds":5,"failureThreshold":720},
      "livenessProbe":{"httpGet":{"path":"/live","port":"system-)" +
           i + R"("},"periodSeconds":5,"timeoutSeconds":4,"failureThreshold":1},
      "readinessProbe":{"httpGet":{"path":"/health","port":"system-)" +
           i + R"("},"periodSeconds":10,"timeoutSeconds":4,"failureThreshold":3}})";
  };
  EXPECT_EQ(pretty(made.manifests[1]), pretty(R"({
    "apiVersion":"v1","kind":"Pod","metadata":{"name":"vllm-decode","labels":{
      "nvidia.com/dynamo-graph-deployment-name":"vllm","nvidia.com/dynamo-component":"Decode",
      "app.kubernetes.io/name":"vllm-decode","nvidia.com/dynamo-component-type":"worker"}},
    "spec":{"containers":[)" + engine("0") + "," +
                                              engine("1") + R"(],
      "initContainers":[{"name":"gms-weights","image":"img","restartPolicy":"Always",
        "command":["gms-serve"],
        "args":["--socket-dir","/shared","--devices","0","--tags","weights,kv_cache"],
        "resources":{"claims":[{"name":"shared-gpu"}]},
        "volumeMounts":[{"name":"failover-shared","mountPath":"/shared"}],
        "env":[{"name":"GMS_SOCKET_DIR","value":"/shared"},
          {"name":"CUDA_DEVICE_ORDER","value":"PCI_BUS_ID"}],
        "startupProbe":{"exec":{"command":["gms-probe","sockets","--socket-dir","/shared",
          "--devices","0","--tags","weights,kv_cache"]},"periodSeconds":2,"timeoutSeconds":5,"failureThreshold":150}}],
      "volumes":[{"name":"failover-shared","emptyDir":{}}],
      "tolerations":[{"key":"nvidia.com/gpu","operator":"Exists","effect":"NoSchedule"}],
      "resourceClaims":[{"name":"shared-gpu","resourceClaimTemplateName":"vllm-decode-gpu"}]}})"));
}

TEST(Generate, DynamosPod) {
  GenerateOptions options;
  options.layout = PodLayout::kDynamo;
  const Generated made = Worker().generate(options);
  ASSERT_EQ(made.errors(), "");
  EXPECT_EQ(pretty(made.container("gms-server")), pretty(R"({
    "name":"gms-server","image":"img","restartPolicy":"Always","command":["gms-serve"],
    "args":["--socket-dir","/gms-intrapod-control","--devices","0","--tags","weights,kv_cache"],
    "resources":{"claims":[{"name":"intrapod-shared-gpu"}]},
    "volumeMounts":[{"name":"gms-intrapod-control","mountPath":"/gms-intrapod-control"}],
    "env":[{"name":"GMS_SOCKET_DIR","value":"/gms-intrapod-control"},
      {"name":"CUDA_DEVICE_ORDER","value":"PCI_BUS_ID"}]})"));
  EXPECT_EQ(pretty(*made.container("engine-1").find("env")), pretty(R"([
    {"name":"ENGINE_ID","value":"1"},{"name":"GMS_SOCKET_DIR","value":"/gms-intrapod-control"},
    {"name":"FAILOVER_LOCK_PATH","value":"/gms-intrapod-control/failover.lock"},
    {"name":"DYN_SYSTEM_STARTING_HEALTH_STATUS","value":"notready"},
    {"name":"DYN_SYSTEM_ENABLED","value":"true"},{"name":"DYN_SYSTEM_PORT","value":"9091"},
    {"name":"CONTAINER_NAME","value":"engine-1"},
    {"name":"DYN_VLLM_GMS_SHADOW_MODE","value":"true"},
    {"name":"CUDA_DEVICE_ORDER","value":"PCI_BUS_ID"},
    {"name":"VLLM_NIXL_SIDE_CHANNEL_PORT","value":"5601"},
    {"name":"DYN_VLLM_KV_EVENT_PORT","value":"20081"},
    {"name":"DYN_FORWARDPASS_METRIC_PORT","value":"20381"},
    {"name":"NIXL_TELEMETRY_PROMETHEUS_PORT","value":"19091"}])"));
  EXPECT_EQ(pretty(*made.workload().find_path({"spec", "template", "metadata", "annotations"})),
            pretty(R"({"nvidia.com/dynamo-kube-discovery-mode":"container"})"));
}

TEST(Generate, ADeploymentNeverNeedsGpusTwice) {
  Worker worker;
  worker.service.replicas = 3;
  const Generated made = worker.generate();
  const yaml::Node& deployment = made.workload();
  EXPECT_EQ(deployment.find("apiVersion")->text(), "apps/v1");
  const yaml::Node* spec = deployment.find("spec");
  EXPECT_EQ(
      pretty(*spec->find("strategy")),
      pretty(R"({"type":"RollingUpdate","rollingUpdate":{"maxSurge":0,"maxUnavailable":1}})"));
  EXPECT_EQ(spec->find("replicas")->text(), "3");
  // The selector matches the labels of the pods.
  const yaml::Node* labels = spec->find_path({"template", "metadata", "labels"});
  for (const yaml::Node::Member& member : spec->find_path({"selector", "matchLabels"})->members()) {
    ASSERT_NE(labels->find(member.key), nullptr);
    EXPECT_TRUE(labels->find(member.key)->same_as(member.value));
  }
  std::string keys;
  for (const yaml::Node::Member& member : deployment.members()) keys += member.key + " ";
  EXPECT_EQ(keys, "apiVersion kind metadata spec ");
}

TEST(Generate, EveryCombinationHasItsParts) {
  for (int bits = 0; bits < 64; ++bits) {
    GenerateOptions options;
    if ((bits & 1) != 0) options.layout = PodLayout::kDynamo;
    if ((bits & 2) != 0) options.lock = LockKind::kLockd;
    options.gms = (bits & 4) != 0 ? GmsProgram::kUpstream : GmsProgram::kOurs;
    if ((bits & 8) != 0) options.gpu_sharing = GpuSharing::kDevicePlugin;
    if ((bits & 16) != 0) options.tools_image = "tools";
    if ((bits & 32) != 0) options.supervise = true;
    SCOPED_TRACE(bits);
    Worker worker;
    worker.service.gpus = 2;
    worker.main += R"(,"securityContext":{"runAsUser":7},"imagePullPolicy":"Never")";
    const Generated made = worker.generate(options);
    if (options.supervise && options.gms == GmsProgram::kUpstream) {
      EXPECT_EQ(made.errors(),
                "f: spec.services.Decode: fo-shadow can't find the sockets of Dynamo's GMS, which "
                "are named by the GPU; use --gms ours");
      continue;
    }
    if (!options.supervise && options.lock == LockKind::kLockd) {
      EXPECT_EQ(made.errors(),
                "f: spec.services.Decode.extraPodSpec.mainContainer.command: Dynamo's workers take "
                "a file for their lock, not a lock server; use --supervise, or --lock flock");
      continue;
    }
    ASSERT_EQ(made.errors(), "");
    const LayoutNames layout = layout_names(options.layout);
    const bool has_tools = !options.tools_image.empty();
    const bool is_dra = options.gpu_sharing == GpuSharing::kDra;
    const std::string bin = has_tools ? "/fo-tools/bin/" : "";

    std::string init;
    if (has_tools) init += "fo-tools|";
    if (options.lock == LockKind::kLockd) init += "gms-lockd|";
    EXPECT_EQ(names(made.pod_spec().find("initContainers")), init + layout.gms_container);
    EXPECT_EQ(names(made.pod_spec().find("volumes")),
              layout.volume + (has_tools ? "|fo-tools" : ""));
    EXPECT_EQ(made.manifests.size(), is_dra ? 2U : 1U);
    EXPECT_EQ(made.pod_spec().find("resourceClaims") != nullptr, is_dra);

    for (const std::string& name :
         {layout.gms_container, std::string("engine-0"), std::string("engine-1")}) {
      const yaml::Node container = made.container(name);
      EXPECT_EQ(pretty(*container.find("resources")),
                pretty(is_dra ? R"({"claims":[{"name":")" + layout.claim + R"("}]})"
                              : R"({"limits":{"nvidia.com/gpu":"2"}})"));
      EXPECT_EQ(container.find_path({"securityContext", "runAsUser"})->text(), "7");
      EXPECT_EQ(container.find("imagePullPolicy")->text(), "Never");
      EXPECT_EQ(made.env(name, "GMS_SOCKET_DIR"), layout.folder);
    }
    const yaml::Node gms = made.container(layout.gms_container);
    EXPECT_EQ(names(gms.find("env")), "GMS_SOCKET_DIR|CUDA_DEVICE_ORDER");
    EXPECT_EQ(gms.find("startupProbe") != nullptr, options.layout == PodLayout::kPlan);
    if (options.gms == GmsProgram::kOurs) {
      EXPECT_EQ(words(gms.find("command")), bin + "gms-serve");
    } else {
      EXPECT_EQ(words(gms.find("command")), "python3|-m|gpu_memory_service.cli.server");
      EXPECT_EQ(gms.find("args"), nullptr);
    }
    if (options.lock == LockKind::kLockd) {
      const yaml::Node lockd = made.container("gms-lockd");
      EXPECT_EQ(words(lockd.find("command")), bin + "gms-lockd");
      EXPECT_EQ(words(lockd.find("args")), "--socket|" + layout.folder + "/failover.sock");
      EXPECT_EQ(words(lockd.find_path({"startupProbe", "exec", "command"})),
                bin + "gms-probe|lock|--lock|unix:" + layout.folder + "/failover.sock");
      EXPECT_EQ(made.env("engine-0", "FAILOVER_LOCK_PATH"),
                "unix:" + layout.folder + "/failover.sock");
    }
    const std::string first = made.container("engine-0").find("command")->items()[0].text();
    EXPECT_EQ(first, options.supervise ? bin + "fo-shadow" : "python3");
    // Two engines that wait for one lock would wait for ever.
    EXPECT_EQ(made.env("engine-0", "DYN_VLLM_GMS_SHADOW_MODE"),
              options.supervise ? "(none)" : "true");
    // Equal input gives equal output.
    const Generated again = worker.generate(options);
    EXPECT_EQ(pretty(again.workload()), pretty(made.workload()));
  }
}

TEST(Generate, UpstreamsGmsHasStartedWithASocketOfEachTagForEachGpu) {
  GenerateOptions options;
  options.gms = GmsProgram::kUpstream;
  for (const int gpus : {1, 2}) {
    Worker worker;
    worker.service.gpus = gpus;
    const Generated made = worker.generate(options);
    EXPECT_EQ(made.env("gms-weights", "GMS_SOCKET_DIR"), "/shared");
    EXPECT_EQ(words(made.container("gms-weights").find_path({"startupProbe", "exec", "command"})),
              "sh|-c|for tag in weights kv_cache; do set -- /shared/gms_*_$tag.sock; test $# -ge " +
                  std::to_string(gpus) +
                  " || exit 1; for socket do test -S \"$socket\" || exit 1; done; done");
  }
}

TEST(Generate, ToolsAreBroughtByAnInitContainer) {
  GenerateOptions options;
  options.tools_image = "registry/tools:1";
  const Generated made = Worker().generate(options);
  EXPECT_EQ(pretty(made.container("fo-tools")), pretty(R"({"name":"fo-tools",
    "image":"registry/tools:1","command":["fo-podgen","install","/fo-tools"],
    "volumeMounts":[{"name":"fo-tools","mountPath":"/fo-tools"}]})"));
  EXPECT_EQ(pretty(*made.container("gms-weights").find("volumeMounts")), pretty(R"([
    {"name":"failover-shared","mountPath":"/shared"},
    {"name":"fo-tools","mountPath":"/fo-tools","readOnly":true}])"));
  // Containers that use none of them do not have them.
  EXPECT_EQ(made.container("engine-0").find("volumeMounts")->items().size(), 1U);
}

TEST(Generate, ClaimsAreInTheClustersApi) {
  const auto claim = [](int minor) {
    GenerateOptions options;
    options.kube_version.minor = minor;
    Worker worker;
    worker.service.gpus = 4;
    worker.service.device_class = "mine";
    const Generated made = worker.generate(options);
    return made.errors().empty()
               ? made.manifests[0].find("apiVersion")->text() + " " +
                     pretty(made.manifests[0]
                                .find_path({"spec", "spec", "devices", "requests"})
                                ->items()[0],
                            -1)
               : made.errors();
  };
  const std::string exactly = R"({"name":"gpus","exactly":{"deviceClassName":"mine",)"
                              R"("allocationMode":"ExactCount","count":4}})";
  EXPECT_EQ(claim(36), "resource.k8s.io/v1 " + exactly);
  EXPECT_EQ(claim(34), "resource.k8s.io/v1 " + exactly);
  EXPECT_EQ(claim(33), "resource.k8s.io/v1beta2 " + exactly);
  EXPECT_EQ(claim(32), R"(resource.k8s.io/v1beta1 {"name":"gpus","deviceClassName":"mine",)"
                       R"("allocationMode":"ExactCount","count":4})");
  EXPECT_EQ(claim(31),
            "f: spec.services.Decode: Kubernetes 1.31: claims for devices need 1.32; use "
            "--gpu-sharing device-plugin, or a later --kube-version");
}

TEST(Generate, TheDevicePluginNeedsSidecars) {
  GenerateOptions options;
  options.gpu_sharing = GpuSharing::kDevicePlugin;
  options.kube_version.minor = 29;
  EXPECT_EQ(Worker().generate(options).errors(), "");
  options.kube_version.minor = 28;
  EXPECT_EQ(Worker().generate(options).errors(),
            "f: spec.services.Decode: Kubernetes 1.28: sidecar init containers need 1.29; set a "
            "later --kube-version");
}

// Checks that every scalar of `input` is in `output`, at the same place; returns the paths of the
// others.
void find_missing(const yaml::Node& input, const yaml::Node& output, const std::string& path,
                  std::vector<std::string>& missing) {
  if (input.is_map()) {
    for (const yaml::Node::Member& member : input.members()) {
      const yaml::Node* other = output.find(member.key);
      if (other == nullptr) {
        missing.push_back(path + "." + member.key);
      } else {
        find_missing(member.value, *other, path + "." + member.key, missing);
      }
    }
  } else if (input.is_list()) {
    // Entries may have others between them, but keep their order.
    std::size_t at = 0;
    for (std::size_t i = 0; i < input.items().size(); ++i) {
      const yaml::Node& item = input.items()[i];
      const yaml::Node* name = item.find("name");
      bool found = false;
      for (; at < output.items().size() && !found; ++at) {
        const yaml::Node& other = output.items()[at];
        const yaml::Node* other_name = other.find("name");
        found = name != nullptr ? other_name != nullptr && other_name->text() == name->text()
                                : item.same_as(other);
        if (found && name != nullptr) {
          find_missing(item, other, path + "[" + name->text() + "]", missing);
        }
      }
      if (!found) missing.push_back(path + "[" + std::to_string(i) + "]");
    }
  } else if (!input.same_as(output)) {
    missing.push_back(path);
  }
}

const char* const kFullSpec = R"("restartPolicy":"Always","terminationGracePeriodSeconds":99,
  "activeDeadlineSeconds":5,"dnsPolicy":"None","dnsConfig":{"options":[{"name":"ndots"}]},
  "nodeSelector":{"a":"b"},"serviceAccountName":"sa","automountServiceAccountToken":false,
  "securityContext":{"fsGroup":7,"runAsUser":8},"imagePullSecrets":[{"name":"s"}],
  "affinity":{"podAffinity":{"x":[1,2]}},"schedulerName":"k",
  "tolerations":[{"key":"t","operator":"Exists"}],"hostAliases":[{"ip":"1.2.3.4"}],
  "priorityClassName":"p","runtimeClassName":"nvidia","enableServiceLinks":true,
  "topologySpreadConstraints":[{"maxSkew":1}],"overhead":{"cpu":"1"},
  "resourceClaims":[{"name":"nic","resourceClaimName":"n"}],"unknownField":{"deep":[{"er":1}]},
  "volumes":[{"name":"cache","persistentVolumeClaim":{"claimName":"c"}},
             {"name":"keys","secret":{"secretName":"k"}}],
  "initContainers":[{"name":"download","image":"d","command":["get"],
                     "volumeMounts":[{"name":"cache","mountPath":"/c"}]},
                    {"name":"proxy","image":"p","restartPolicy":"Always"}])";
const char* const kFullMain = R"("imagePullPolicy":"Always","workingDir":"/w",
  "command":["python3","-m","dynamo.vllm"],"args":["--model","m"],
  "envFrom":[{"secretRef":{"name":"hf"}}],
  "env":[{"name":"A","value":"1"},{"name":"B","valueFrom":{"secretKeyRef":{"key":"k"}}}],
  "resources":{"limits":{"memory":"8Gi","nvidia.com/gpu":"1"},
               "requests":{"cpu":"2","nvidia.com/gpu":"1"},"claims":[{"name":"nic"}]},
  "volumeMounts":[{"name":"cache","mountPath":"/c","subPath":"x"}],
  "volumeDevices":[{"name":"keys","devicePath":"/d"}],
  "securityContext":{"capabilities":{"add":["IPC_LOCK"]}},"tty":true,
  "terminationMessagePath":"/t","lifecycle":{"preStop":{"exec":{"command":["x"]}}},
  "readinessProbe":{"exec":{"command":["ready"]},"periodSeconds":77},"unknownToo":"y")";

TEST(Generate, EveryFieldOfTheUsersIsKept) {
  const Worker worker{
      .main = kFullMain,
      .spec = kFullSpec,
      .others = R"({"name":"sidecar","image":"s","ports":[{"containerPort":80}],
    "resources":{"limits":{"cpu":"1"}}},{"name":"last","image":"l"})",
      .metadata = R"({"labels":{"l":"1"},"annotations":{"a":"2"},"finalizers":["f"]})"};
  for (const PodLayout layout : {PodLayout::kPlan, PodLayout::kDynamo}) {
    for (const bool supervise : {false, true}) {
      GenerateOptions options;
      options.layout = layout;
      options.supervise = supervise;
      const Generated made = worker.generate(options);
      ASSERT_EQ(made.errors(), "");
      yaml::Node input = worker.pod_template();
      const yaml::Node main = input["spec"]["containers"].items()[0];
      input["spec"]["containers"].items().erase(input["spec"]["containers"].items().begin());
      std::vector<std::string> missing;
      find_missing(input, *made.workload().find_path({"spec", "template"}), "", missing);
      EXPECT_EQ(missing, std::vector<std::string>());
      for (const char* const engine : {"engine-0", "engine-1"}) {
        missing.clear();
        yaml::Node own = main;
        own.remove("name");
        // After the words of the wrapper.
        if (supervise) own.remove("command");
        find_missing(own, made.container(engine), "", missing);
        EXPECT_EQ(missing, (std::vector<std::string>{".resources.limits.nvidia.com/gpu",
                                                     ".resources.requests.nvidia.com/gpu"}));
      }
      EXPECT_EQ(names(made.pod_spec().find("containers")), "engine-0|engine-1|sidecar|last");
      EXPECT_TRUE(names(made.pod_spec().find("initContainers")).ends_with("|download|proxy"));
      EXPECT_EQ(names(made.container("engine-0").find_path({"resources", "claims"})),
                "nic|" + layout_names(layout).claim);
    }
  }
}

TEST(Generate, ClientsOfTheGmsShareTheGpus) {
  Worker worker;
  worker.others = R"({"name":"loader","image":"l","env":[{"name":"X","value":"1"}],
    "resources":{"limits":{"nvidia.com/gpu":"1","cpu":"1"}}},{"name":"other","image":"o"})";
  worker.spec = R"("initContainers":[{"name":"warm","image":"w"}])";
  worker.service.gms_clients = {"loader", "warm"};
  const Generated made = worker.generate();
  ASSERT_EQ(made.errors(), "");
  EXPECT_EQ(pretty(made.container("loader")), pretty(R"({"name":"loader","image":"l",
    "env":[{"name":"X","value":"1"},{"name":"GMS_SOCKET_DIR","value":"/shared"},
      {"name":"CUDA_DEVICE_ORDER","value":"PCI_BUS_ID"}],
    "resources":{"limits":{"cpu":"1"},"claims":[{"name":"shared-gpu"}]},
    "volumeMounts":[{"name":"failover-shared","mountPath":"/shared"}]})"));
  EXPECT_EQ(made.env("warm", "GMS_SOCKET_DIR"), "/shared");
  EXPECT_EQ(pretty(made.container("other")), pretty(R"({"name":"other","image":"o"})"));
}

TEST(Generate, VariablesThatWouldMisleadAnEngineGo) {
  Worker worker;
  worker.main += R"j(,"env":[{"name":"DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS","value":"x"},
    {"name":"DYN_SYSTEM_PORT","value":"8081"},{"name":"DYN_SYSTEM_ENABLED","value":"false"},
    {"name":"DYN_HEALTH_CHECK_ENABLED","value":"true"},{"name":"CONTAINER_NAME","value":"c"},
    {"name":"Z","value":"$(ENGINE_ID)"}])j";
  GenerateOptions options;
  Generated made = worker.generate(options);
  ASSERT_EQ(made.errors(), "");
  EXPECT_EQ(names(made.container("engine-0").find("env")),
            "ENGINE_ID|GMS_SOCKET_DIR|FAILOVER_LOCK_PATH|DYN_SYSTEM_STARTING_HEALTH_STATUS|"
            "DYN_SYSTEM_ENABLED|DYN_SYSTEM_PORT|DYN_VLLM_GMS_SHADOW_MODE|CONTAINER_NAME|Z|"
            "CUDA_DEVICE_ORDER|VLLM_NIXL_SIDE_CHANNEL_PORT|DYN_VLLM_KV_EVENT_PORT|"
            "DYN_FORWARDPASS_METRIC_PORT|NIXL_TELEMETRY_PROMETHEUS_PORT");
  EXPECT_EQ(made.env("engine-1", "DYN_SYSTEM_PORT"), "9091");
  EXPECT_EQ(made.env("engine-1", "CONTAINER_NAME"), "c");
  options.layout = PodLayout::kDynamo;
  EXPECT_EQ(worker.generate(options).env("engine-1", "CONTAINER_NAME"), "engine-1");
}

TEST(Generate, ProbesOfTheUsersGoToTheEnginesPort) {
  Worker worker;
  worker.main += R"(,"ports":[{"name":"http","containerPort":8000}],
    "startupProbe":{"grpc":{"port":8000,"service":"s"},"periodSeconds":3},
    "livenessProbe":{"httpGet":{"path":"/live","port":"http"},"failureThreshold":9},
    "readinessProbe":{"tcpSocket":{"port":9090}},
    "lifecycle":{"preStop":{"httpGet":{"path":"/x","port":"http"}},
                 "postStart":{"tcpSocket":{"port":1234}}})";
  const yaml::Node engine = worker.generate().container("engine-1");
  EXPECT_EQ(pretty(*engine.find("startupProbe")),
            pretty(R"({"grpc":{"port":9091,"service":"s"},"periodSeconds":3})"));
  EXPECT_EQ(pretty(*engine.find("livenessProbe")),
            pretty(R"({"httpGet":{"path":"/live","port":"system-1"},"failureThreshold":9})"));
  EXPECT_EQ(pretty(*engine.find("readinessProbe")), pretty(R"({"tcpSocket":{"port":"system-1"}})"));
  EXPECT_EQ(pretty(*engine.find("lifecycle")), pretty(R"({
    "preStop":{"httpGet":{"path":"/x","port":"system-1"}},
    "postStart":{"tcpSocket":{"port":1234}}})"));
}

TEST(Generate, DiscoveryByKubernetesIsLeftOutOfThePlan) {
  const Worker worker{.metadata = R"({"labels":{"nvidia.com/dynamo-discovery-backend":"kubernetes",
    "dynamo-discovery-enabled":"true","other":"x"}})"};
  const auto labels = [&](PodLayout layout) {
    GenerateOptions options;
    options.layout = layout;
    const Generated made = worker.generate(options);
    std::string keys;
    const yaml::Node* all = made.workload().find_path({"spec", "template", "metadata", "labels"});
    for (const yaml::Node::Member& member : all->members()) {
      if (member.key.find("discovery") != std::string::npos || member.key == "other") {
        keys += member.key + " ";
      }
    }
    return keys;
  };
  EXPECT_EQ(labels(PodLayout::kPlan), "other ");
  EXPECT_EQ(labels(PodLayout::kDynamo),
            "nvidia.com/dynamo-discovery-backend dynamo-discovery-enabled other ");
}

TEST(Generate, ATolerationThatIsThereIsEnough) {
  const auto count = [](const std::string& toleration) {
    Worker worker{.spec = R"("tolerations":[)" + toleration + "]"};
    return worker.generate().pod_spec().find("tolerations")->items().size();
  };
  EXPECT_EQ(count(R"({"key":"nvidia.com/gpu","operator":"Exists","effect":"NoSchedule"})"), 1U);
  EXPECT_EQ(count(R"({"key":"nvidia.com/gpu","operator":"Exists"})"), 1U);
  EXPECT_EQ(count(R"({"operator":"Exists"})"), 1U);
  EXPECT_EQ(count(R"({"key":"nvidia.com/gpu","operator":"Exists","effect":"NoExecute"})"), 2U);
  EXPECT_EQ(count(R"({"key":"nvidia.com/gpu","value":"x","effect":"NoSchedule"})"), 2U);
}

TEST(Supervise, AnEngineOfDynamosRunsUnderFoShadow) {
  Worker worker;
  worker.service.gpus = 2;
  GenerateOptions options = supervised();
  options.engine = "dynamo";
  const Generated made = worker.generate(options);
  ASSERT_EQ(made.errors(), "");
  const yaml::Node engine = made.container("engine-1");
  EXPECT_EQ(words(engine.find("command")),
            "fo-shadow|--engine|dynamo|--devices|0,1|--|python3|-m|dynamo.vllm");
  EXPECT_TRUE(words(engine.find("args")).starts_with("--model|m|"));
  EXPECT_EQ(names(engine.find("ports")), "system-1");
  EXPECT_EQ(made.pod_spec().find("terminationGracePeriodSeconds")->text(), "60");
}

TEST(Supervise, AnApiIsPublishedAtItsPort) {
  Worker worker{.main = kVllm};
  const Generated made = worker.generate(supervised());
  ASSERT_EQ(made.errors(), "");
  EXPECT_EQ(made.warnings(), "");
  for (int i = 0; i < 2; ++i) {
    const yaml::Node engine = made.container("engine-" + std::to_string(i));
    const std::string port = std::to_string(8001 + i);
    EXPECT_EQ(words(engine.find("command")),
              "fo-shadow|--engine|vllm|--devices|0|--engine-url|http://127.0.0.1:" + port +
                  "|--publish|0.0.0.0:8000|--|vllm|serve|m|--enable-sleep-mode|--load-format|gms");
    EXPECT_EQ(
        words(engine.find("args")),
        "--worker-cls|gpu_memory_service.integrations.vllm.worker.GMSWorker|" +
            std::string(i == 0 ? "" : R"(--model-loader-extra-config|{"gms_read_only":true}|)") +
            "--host|127.0.0.1|--port|" + port);
  }
  EXPECT_EQ(pretty(*made.container("engine-0").find("ports")), pretty(R"([
    {"name":"system-0","containerPort":9090,"protocol":"TCP"},
    {"name":"api","containerPort":8000,"protocol":"TCP"}])"));
  // A pod declares a name only once.
  EXPECT_EQ(names(made.container("engine-1").find("ports")), "system-1");
}

TEST(Supervise, TheUsersPortAndHostAreKept) {
  struct Case {
    std::string args;
    std::string engine_1;
    std::string publish;
  };
  const Case cases[] = {
      {R"("--port","9000")", "--port|9002|--host|127.0.0.1", "0.0.0.0:9000"},
      {R"("--port=9000","--host=0.0.0.0")", "--port=9002|--host=127.0.0.1", "0.0.0.0:9000"},
      {R"("--host","::")", "--host|127.0.0.1|--port|8002", "[::]:8000"},
      {R"("--host","127.0.0.1")", "--host|127.0.0.1|--port|8002", "127.0.0.1:8000"},
  };
  for (const Case& one : cases) {
    const Worker worker{.main = R"("command":["fo-refengine","serve"],"args":[)" + one.args + "]"};
    const yaml::Node engine = worker.generate(supervised()).container("engine-1");
    EXPECT_EQ(words(engine.find("args")), one.engine_1);
    EXPECT_NE(words(engine.find("command")).find("--publish|" + one.publish + "|--"),
              std::string::npos);
  }
}

TEST(Supervise, TheUsersNameOfThePortIsKept) {
  const Worker worker{.main = std::string(kVllm) +
                              R"(,"ports":[{"name":"http","containerPort":8000,"hostPort":80},
                             {"name":"other","containerPort":1}])"};
  const Generated made = worker.generate(supervised());
  ASSERT_EQ(made.errors(), "");
  EXPECT_EQ(pretty(made.container("engine-0").find("ports")->items()[1]),
            pretty(R"({"name":"http","containerPort":8000,"hostPort":80})"));
}

TEST(Supervise, SglangListensBesideItsOwnPort) {
  const Worker worker{
      .main = R"("command":["python3","-m","sglang.launch_server","--enable-memory-saver",
                            "--load-format=gms"])"};
  const Generated made = worker.generate(supervised());
  ASSERT_EQ(made.errors(), "");
  EXPECT_EQ(words(made.container("engine-0").find("args")), "--host|127.0.0.1|--port|30001");
}

TEST(Supervise, AScriptIsWrappedWhole) {
  const Worker worker{.main = R"("command":["/bin/bash","-ec"],
    "args":["cd /w\nexec fo-refengine serve --model $M --port 8000 # engine\n","zero"])"};
  const yaml::Node engine = worker.generate(supervised()).container("engine-1");
  EXPECT_EQ(words(engine.find("command")),
            "fo-shadow|--engine|vllm|--devices|0|--engine-url|http://127.0.0.1:8002|--publish|"
            "0.0.0.0:8000|--|/bin/bash|-ec");
  EXPECT_EQ(words(engine.find("args")),
            "cd /w\nexec fo-refengine serve --model $M --port 8002 --host 127.0.0.1 # engine\n"
            "|zero");
}

TEST(Supervise, AScriptWithNothingToChangeNeedsNotBeUnderstood) {
  Worker worker;
  worker.main = R"("command":["sh","-c","while true; do python3 -m dynamo.vllm; done"])";
  GenerateOptions options = supervised();
  options.engine = "dynamo";
  const Generated made = worker.generate(options);
  EXPECT_EQ(made.errors(), "");
  EXPECT_EQ(words(made.container("engine-0").find("command")),
            "fo-shadow|--engine|dynamo|--devices|0|--|sh|-c|while true; do python3 -m dynamo.vllm; "
            "done");
}

TEST(Supervise, RefusesAnApiThatFoShadowCannotAsk) {
  const auto errors = [](const std::string& args, const std::string& env) {
    Worker worker{.main = R"("command":["vllm","serve","m",)" + args +
                          R"("--enable-sleep-mode","--load-format","gms"],"env":[)" + env +
                          R"({"name":"VLLM_SERVER_DEV_MODE","value":"1"}])"};
    return worker.generate(supervised()).errors();
  };
  const std::string remedy =
      ": fo-shadow queries the engine at a port, without this option; leave it out: the engine "
      "listens at 127.0.0.1 only; restrict access to the published port outside of the pod";
  const std::string args = "f: spec.services.Decode.extraPodSpec.mainContainer.args: ";
  EXPECT_EQ(errors(R"("--api-key","k",)", ""), args + "--api-key" + remedy);
  EXPECT_EQ(errors(R"("--uds","/s",)", ""), args + "--uds" + remedy);
  EXPECT_EQ(errors(R"("--ssl-keyfile=/k","--ssl-certfile=/c",)", ""),
            args + "--ssl-keyfile" + remedy + "\n" + args + "--ssl-certfile" + remedy);
  EXPECT_EQ(errors("", R"({"name":"VLLM_API_KEY","valueFrom":{"secretKeyRef":{"key":"k"}}},)"),
            "f: spec.services.Decode.extraPodSpec.mainContainer.env[VLLM_API_KEY]: fo-shadow "
            "queries the engine without this key; leave it out, and restrict access to the "
            "published port "
            "outside of the pod");
  EXPECT_EQ(errors("", R"({"name":"VLLM_API_KEY","value":""},)"), "");
}

TEST(Warned, OfWhatDynamosOperatorWouldSet) {
  const auto warnings = [](const std::string& env) {
    Worker worker{.main =
                      R"("command":["python3","-m","dynamo.vllm","--load-format","gms"],"env":[)" +
                      env + "]"};
    return worker.generate().warnings();
  };
  EXPECT_EQ(warnings(R"({"name":"DYN_NAMESPACE","value":"n"})"), "");
  EXPECT_EQ(warnings(""),
            "f: spec.services.Decode.extraPodSpec.mainContainer.env: Dynamo's operator would set "
            "DYN_NAMESPACE, DYN_COMPONENT, ETCD_ENDPOINTS and NATS_SERVER, the places to register; "
            "set them in envs");
}

TEST(Warned, OfVariablesThatMayBeOptions) {
  const Worker worker{
      .main = R"("command":["sh","-c","exec python3 -m dynamo.vllm --load-format gms $ARGS"],
    "env":[{"name":"DYN_NAMESPACE","value":"n"},{"name":"ARGS","value":"--master-port 29500"}])"};
  EXPECT_EQ(worker.generate().warnings(),
            "f: spec.services.Decode.extraPodSpec.mainContainer.command: '$ARGS': a port in it "
            "would be used by both engines; write the options in the command, or put the variable "
            "in double quotes");
}

TEST(Refused, EachWithItsReason) {
  struct Case {
    std::string main;
    std::string spec;
    std::string others;
    bool supervise = false;
    std::string error;
  };
  const std::string dynamo = R"("command":["python3","-m","dynamo.vllm"])";
  const std::string main = "f: spec.services.Decode.extraPodSpec.mainContainer.";
  const std::string spec = "f: spec.services.Decode.extraPodSpec.";
  const Case cases[] = {
      {R"("command":["tini","--","sh","-c","vllm serve m"])", "", "", true,
       main + "command: each engine needs a --port of its own: the script has a command before its "
              "shell: 'tini'; make the command a list, or a script of one command"},
      {R"("command":["sh","-c","./run | ./next"])", "", "", true,
       main +
           "command: it does not show which engine it starts: the script has a pipe; use --engine"},
      {R"j("command":["vllm","serve","m","--enable-sleep-mode","--port","$(P)"],
          "env":[{"name":"VLLM_SERVER_DEV_MODE","value":"1"}])j",
       "", "", true,
       main + "args: --port can't be changed for each engine: a variable is in its value; use a "
              "plain number, in a list of arguments or a script of one command"},
      {R"("command":["fo-refengine","serve","--port","65534"])", "", "", true,
       main + "args: --port 65534: the engines would need ports over 65535; choose a lower one"},
      {R"("command":["fo-refengine","serve","--host","10.0.0.1"])", "", "", true,
       main + "args: --host: the engine has to listen at 127.0.0.1, not '10.0.0.1'; leave --host "
              "out: fo-shadow listens for the pod's clients"},
      {dynamo + R"(,"readinessProbe":{"httpGet":{"path":"/ping","port":1}})", "", "", true,
       main + "readinessProbe.httpGet.path: '/ping': fo-shadow answers for the engine, at /live "
              "and /health; use one of those, or leave the probe out"},
      {dynamo + R"(,"readinessProbe":{"httpGet":{"path":"/health","port":1,"scheme":"HTTPS"}})", "",
       "", false,
       main + "readinessProbe.httpGet.scheme: the engine's system port has no TLS; leave it out"},
      {dynamo + R"(,"ports":[{"containerPort":1,"hostPort":2}])", "", "", false,
       main + "ports: hostPort '2': two engines cannot share one port of the node; leave it out"},
      {dynamo + R"(,"volumeMounts":[{"name":"x","mountPath":"/shared/"}])", "", "", false,
       main + "volumeMounts: '/shared/': the volume 'failover-shared' must be mounted there; "
              "mount yours elsewhere"},
      {dynamo, R"("volumes":[{"name":"failover-shared","emptyDir":{}}])", "", false,
       spec + "volumes[0].name: 'failover-shared': the failover pod uses this name; choose "
              "another name"},
      {dynamo + R"(,"volumeMounts":[{"name":"failover-shared","mountPath":"/x"}])", "", "", false,
       main + "volumeMounts[0].name: 'failover-shared': the failover pod uses this name; choose "
              "another name"},
      {dynamo, "", R"({"name":"s","resources":{"claims":[{"name":"shared-gpu"}]}})", false,
       spec + "containers[0].resources.claims[0].name: 'shared-gpu': the failover pod uses this "
              "name; choose another name"},
      {dynamo, R"("resourceClaims":[{"name":"shared-gpu"}])", "", false,
       spec + "resourceClaims[0].name: 'shared-gpu': the failover pod uses this name; choose "
              "another name"},
      {dynamo, "", R"({"name":"s","ports":[{"containerPort":80},{"containerPort":9091}]})", false,
       spec + "containers[0].ports[1]: 9091 for s (ports): engine-1 has this port "
              "(DYN_SYSTEM_PORT); choose another port"},
      {dynamo, "", R"({"name":"s","ports":[{"containerPort":9190}]})", true,
       spec + "containers[0].ports[0]: 9190 for s (ports): engine-0 has this port (own "
              "DYN_SYSTEM_PORT); choose another port"},
      {kVllm, "", R"({"name":"s","ports":[{"containerPort":8001}]})", true,
       spec + "containers[0].ports[0]: 8001 for s (ports): engine-0 has this port (API); choose "
              "another port"},
      {dynamo + R"(,"env":[{"name":"VLLM_PORT","value":"9091"}])", "", "", false,
       main + "env[VLLM_PORT]: 9091 for engine-0 (VLLM_PORT): engine-1 has this port "
              "(DYN_SYSTEM_PORT); choose another port"},
  };
  for (const Case& one : cases) {
    const Worker worker{.main = one.main, .spec = one.spec, .others = one.others};
    GenerateOptions options;
    options.supervise = one.supervise;
    EXPECT_EQ(worker.generate(options).errors(), one.error);
  }
}

// The GMS that the pod runs by default: "ours", "upstream", or the error.
std::string chosen_gms(const std::string& main, bool supervise, const std::string& engine = "",
                       const std::string& tools = "", LockKind lock = LockKind::kFlock) {
  const Worker worker{.main = main, .gms = std::nullopt};
  GenerateOptions options;
  options.supervise = supervise;
  options.engine = engine;
  options.tools_image = tools;
  options.lock = lock;
  const Generated made = worker.generate(options);
  if (!made.errors().empty()) return made.errors();
  const yaml::Node gms = made.container("gms-weights");
  return words(gms.find("command")).find("gms-serve") != std::string::npos ? "ours" : "upstream";
}

TEST(Gms, IsWhatTheImagesAreKnownToHave) {
  const std::string dynamo = R"("command":["python3","-m","dynamo.vllm"])";
  const std::string vllm = R"("command":["vllm","serve","m"])";
  const std::string refengine = R"("command":["fo-refengine","serve"])";
  const std::string start = "f: spec.services.Decode.extraPodSpec.mainContainer.image: ";
  const std::string end =
      " possibly missing in it: only this toolkit's image is known to have the tools; use "
      "--tools-image "
      "IMAGE, or "
      "--gms ours where this image has the tools, too";
  EXPECT_EQ(chosen_gms(dynamo, false), "upstream");
  EXPECT_EQ(chosen_gms(dynamo, false, "", "tools"), "ours");
  EXPECT_EQ(chosen_gms(R"("command":["/run.sh"])", false, "dynamo"), "upstream");
  EXPECT_EQ(chosen_gms(dynamo, true), start + "fo-shadow and gms-serve are" + end);
  EXPECT_EQ(chosen_gms(dynamo, true, "", "tools"), "ours");
  EXPECT_EQ(chosen_gms(vllm, true), start + "fo-shadow and gms-serve are" + end);
  EXPECT_EQ(chosen_gms(vllm, true, "", "tools"), "ours");
  EXPECT_EQ(chosen_gms(refengine, true), "ours");
  EXPECT_EQ(chosen_gms(R"("command":["gms-lock","acquire","--","vllm","serve","m"])", false),
            "ours");
  EXPECT_NE(chosen_gms(dynamo, false, "", "", LockKind::kLockd).find("gms-serve is" + end),
            std::string::npos);
}

TEST(Generate, ArgumentsWithoutACommandAreAScriptOfDynamosOperator) {
  Worker worker{.main = R"("args":["python3 -m dynamo.vllm --model m"])"};
  const Generated made = worker.generate();
  ASSERT_EQ(made.errors(), "");
  EXPECT_EQ(words(made.container("engine-0").find("command")), "/bin/sh|-c");
  EXPECT_EQ(words(made.container("engine-0").find("args")),
            "python3 -m dynamo.vllm --model m --load-format gms");
  // Arguments of the image's own entrypoint.
  worker.main = R"("args":["--model","m"])";
  GenerateOptions options;
  options.engine = "dynamo";
  EXPECT_EQ(words(worker.generate(options).container("engine-0").find("command")), "none");
}

TEST(Generate, AScriptThatWantsAnEmptyGpuIsWarnedOf) {
  Worker worker;
  worker.main =
      R"("command":["sh","-c","while nvidia-smi --query-gpu=memory.used | grep -v 0; do sleep 1; done; exec python3 -m dynamo.vllm"])";
  EXPECT_NE(worker.generate().warnings().find("command: it checks with nvidia-smi that the GPU is "
                                              "unused, but the GMS and the other engine use it; "
                                              "make sure that it does not wait for an unused GPU"),
            std::string::npos);
  worker.main = R"("command":["sh","-c","nvidia-smi; exec python3 -m dynamo.vllm"])";
  EXPECT_EQ(worker.generate().warnings().find("nvidia-smi"), std::string::npos);
}

TEST(Refused, WhatOnePodCannotBe) {
  Worker worker;
  worker.service.replicas = 2;
  GenerateOptions options;
  options.kind = WorkloadKind::kPod;
  EXPECT_EQ(
      worker.generate(options).errors(),
      "f: spec.services.Decode: 2 replicas: kind pod allows only one; use --kind deployment, or 1 "
      "replica");
}

TEST(Refused, TwoServicesOfOneName) {
  Dgd dgd;
  dgd.name = "vllm";
  Worker worker;
  dgd.services = {worker.service, worker.service};
  dgd.services[1].name = "DECODE";
  dgd.services[0].pod_template = worker.pod_template();
  Findings findings;
  generate(dgd, dgd.services[0], {}, findings);
  keep_errors(findings);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].reason, "'vllm-decode': pods of another service use this name");
}

TEST(Refused, WithThePlaceInTheInput) {
  Worker worker;
  worker.service.pod_template = worker.pod_template();
  yaml::Node& main = worker.service.pod_template["spec"]["containers"].items()[0];
  main["volumeMounts"].push_back(node(R"({"name":"x","mountPath":"/shared"})"));
  main["volumeMounts"].items()[0]["mountPath"].at({12, 34});
  Generated made = worker.generate();
  keep_errors(made.findings);
  ASSERT_EQ(made.findings.size(), 1U);
  EXPECT_TRUE(format(made.findings[0], "f").starts_with("f:12:34: spec.services.Decode."));
}

TEST(Refused, WithThePathOfTheInput) {
  // The main container was second in the input, and is first here.
  Dgd dgd;
  dgd.name = "vllm";
  dgd.version = DgdVersion::kV1Beta1;
  const Worker worker{.others = R"({"name":"a"},{"name":"z","ports":[{"containerPort":9090}]})"};
  Service service = worker.service;
  service.path = "spec.components[1]";
  service.pod_template = worker.pod_template();
  std::vector<yaml::Node>& containers = service.pod_template["spec"]["containers"].items();
  containers[0].at({20, 1});
  containers[0].set("volumeMounts", node(R"([{"name":"x","mountPath":"/shared"}])"));
  containers[1].at({10, 1});
  containers[2].at({30, 1});
  Findings findings;
  generate(dgd, service, {}, findings);
  keep_errors(findings);
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0].path, "spec.components[1].podTemplate.spec.containers[1].volumeMounts");
  EXPECT_EQ(findings[1].path, "spec.components[1].podTemplate.spec.containers[2].ports[0]");
}

TEST(Warned, OfSettingsOfThePod) {
  const Worker worker{.main = R"("command":["python3","-m","dynamo.vllm","--load-format","gms"],
    "env":[{"name":"ENGINE_ID","value":"7"},{"name":"DYN_NAMESPACE","value":"n"}])",
                      .spec = R"("hostNetwork":true,"hostPID":false,"shareProcessNamespace":true)"};
  EXPECT_EQ(worker.generate().warnings(),
            "f: spec.services.Decode.extraPodSpec.hostNetwork: the engines use ports of the node: "
            "a node can run only one such pod; leave it out if the engines work without it\nf: "
            "spec.services.Decode.extraPodSpec.shareProcessNamespace: processes that a dead engine "
            "leaves are killed later, and the other engine waits for that; leave it out\nf: "
            "spec.services.Decode.extraPodSpec.mainContainer.env[ENGINE_ID]: it is set for each "
            "engine; leave it out");
}

const char* const kQuiet =
    R"("command":["python3","-m","dynamo.vllm","--load-format","gms"],
       "env":[{"name":"DYN_NAMESPACE","value":"n"}])";

TEST(Warned, OfProbesThatAskTheOtherEngine) {
  const auto warnings = [](const std::string& command) {
    Worker worker{.main = std::string(kQuiet) + R"(,"livenessProbe":{"exec":{"command":[)" +
                          command + "]}}"};
    return worker.generate().warnings();
  };
  const std::string warning = kMainPath +
                              "livenessProbe.exec: its port may be the other engine's; use "
                              "$DYN_SYSTEM_PORT in sh -c, or leave the probe out";
  EXPECT_EQ(warnings(R"("curl","-f","http://localhost:9090/live")"), warning);
  EXPECT_EQ(warnings(R"("nc","-z","127.0.0.1","9090")"), warning);
  EXPECT_EQ(warnings(R"("sh","-c","curl -f localhost:$DYN_SYSTEM_PORT/live")"), "");
  EXPECT_EQ(warnings(R"("cat","/tmp/live")"), "");
}

TEST(Warned, OfPortsThatAreNotDeclaredAnyMore) {
  const Worker worker{
      .main = std::string(kQuiet) +
              R"(,"args":["--master-port","29500"],"ports":[{"name":"metrics","containerPort":7777},
      {"containerPort":7778},{"name":"system","containerPort":8081},{"containerPort":9090},
      {"name":"rdv","containerPort":29500}])"};
  const std::string rest =
      ": no longer declared: two engines cannot share it; leave it out, or give it to a "
      "sidecar";
  EXPECT_EQ(worker.generate().warnings(), kMainPath + "ports[0]: 'metrics' (7777)" + rest + "\n" +
                                              kMainPath + "ports[1]: 7778" + rest);
}

TEST(Warned, OfTooShortAnEnd) {
  Worker worker{.main = kVllm, .spec = R"("terminationGracePeriodSeconds":5)"};
  EXPECT_EQ(
      worker.generate(supervised()).warnings(),
      "f: spec.services.Decode.extraPodSpec.terminationGracePeriodSeconds: 5: fo-shadow takes "
      "up to 35 s to let requests finish; set at least 40, or leave it out");
  worker.main = kQuiet;
  EXPECT_EQ(worker.generate().warnings(), "");
}

TEST(Warned, OfSeveralGpusWithoutSharedMemory) {
  Worker worker;
  worker.service.gpus = 2;
  worker.main = kQuiet;
  EXPECT_EQ(worker.generate().warnings(),
            "f: spec.services.Decode: nothing is mounted at /dev/shm, where an engine on several "
            "GPUs needs more than the 64 MiB of any container; set sharedMemory: {size: 8Gi}");
  worker.service.wants_no_shared_memory = true;
  EXPECT_EQ(worker.generate().warnings(), "");
  worker.service.wants_no_shared_memory = false;
  worker.main += R"(,"volumeMounts":[{"name":"shm","mountPath":"/dev/shm"}])";
  EXPECT_EQ(worker.generate().warnings(), "");
}

TEST(Refused, HooksThatTheKubeletCannotRun) {
  const Worker worker{.main =
                          std::string(kVllm) + R"(,"ports":[{"name":"http","containerPort":8000}],
    "lifecycle":{"preStop":{"httpGet":{"path":"/drain","port":"http"}},
                 "postStart":{"httpGet":{"path":"/health","port":8000}}})"};
  const Generated made = worker.generate(supervised());
  EXPECT_EQ(made.errors(),
            kMainPath +
                "lifecycle.preStop.httpGet: '/drain': the engine listens at 127.0.0.1, where only "
                "its pod reaches it; use exec, which runs inside the pod");
}

TEST(Refused, APortWithTheNameOfTheSystemsOne) {
  const Worker worker{.main = std::string(kVllm) +
                              R"(,"ports":[{"name":"system-0","containerPort":8000}])"};
  EXPECT_EQ(worker.generate(supervised()).errors(),
            kMainPath +
                "ports[0].name: 'system-0': the engine's system port has this name; choose "
                "another name");
}

TEST(Refused, MountsOverTheToolkitsFiles) {
  GenerateOptions options = supervised();
  options.tools_image = "tools";
  const auto errors = [&](const std::string& path) {
    Worker worker{.main = std::string(kQuiet) + R"(,"volumeMounts":[{"name":"x","mountPath":")" +
                          path + "\"}]"};
    return worker.generate(options).errors();
  };
  EXPECT_NE(errors("/fo-tools/bin").find("the volume 'fo-tools' must be"), std::string::npos);
  EXPECT_NE(errors("/shared/failover.lock").find("'failover-shared'"), std::string::npos);
  EXPECT_NE(errors("/shared/./gms_0.sock").find("'failover-shared'"), std::string::npos);
  EXPECT_EQ(errors("/shared/models"), "");
  EXPECT_EQ(errors("/shared2"), "");
}

TEST(Refused, ClientsOfTheGmsAsAnotherUser) {
  Worker worker;
  worker.main = std::string(kQuiet) + R"(,"securityContext":{"runAsUser":1000})";
  worker.others = R"({"name":"a","image":"i","securityContext":{"runAsUser":2000}},
                     {"name":"b","image":"i","securityContext":{"runAsUser":1000}},
                     {"name":"c","image":"i"})";
  worker.service.gms_clients = {"a", "b", "c"};
  const std::string spec = "f: spec.services.Decode.extraPodSpec.";
  const std::string rest = ": the GMS serves only its own user, 1000; run both as one user";
  EXPECT_EQ(worker.generate().errors(), spec + "containers[0].securityContext: user 2000" + rest);
  worker.spec = R"("securityContext":{"runAsUser":3})";
  EXPECT_EQ(worker.generate().errors(), spec + "containers[0].securityContext: user 2000" + rest +
                                            "\n" + spec + "containers[2].securityContext: user 3" +
                                            rest);
}

TEST(Generate, OnlyWhatServesTheGpusHasThePrivilegesOfTheEngine) {
  const Worker worker{.main = std::string(kQuiet) +
                              R"(,"securityContext":{"runAsUser":7,"privileged":true,
    "capabilities":{"add":["SYS_ADMIN"]}})"};
  GenerateOptions options;
  options.lock = LockKind::kLockd;
  options.tools_image = "tools";
  options.supervise = true;
  const Generated made = worker.generate(options);
  ASSERT_EQ(made.errors(), "");
  for (const char* const name : {"fo-tools", "gms-lockd"}) {
    EXPECT_EQ(pretty(*made.container(name).find("securityContext")),
              pretty(R"({"runAsUser":7,"allowPrivilegeEscalation":false,
                         "capabilities":{"drop":["ALL"]}})"));
  }
  EXPECT_NE(made.container("gms-weights").find_path({"securityContext", "privileged"}), nullptr);
}

}  // namespace
}  // namespace fo::pod
