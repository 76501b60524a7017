#include "pod/dgd/pod_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>

#include "base/error.h"
#include "pod/pod_rules.h"
#include "text/nearest_name.h"
#include "yaml/scalar.h"

namespace fo::pod {
namespace {

struct SchemaType {
  std::string_view name;
  /// "NAME:TYPE NAME:TYPE …"; NAME alone for any type.
  std::string_view fields;
};

constexpr SchemaType kTypes[] = {
    {"Dgd", "apiVersion:str kind:str metadata:ObjectMeta spec status"},
    {"ObjectMeta",
     "annotations:{str} creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers "
     "generateName:str generation labels:{str} managedFields name:str namespace:str "
     "ownerReferences resourceVersion selfLink uid"},
    {"DgdBeta",
     "annotations:{str} backendFramework:str components:[map] env:[EnvVar] experimental:map "
     "labels:{str} priorityClassName:str providerOverride:map restart:Restart "
     "topologyConstraint:TopologyBeta"},
    {"TopologyBeta", "clusterTopologyName:str packDomain:str"},
    {"Component",
     "compilationCache:CompilationCache dynamoSidecar:str eppConfig:EppConfig "
     "experimental:Experimental frontendSidecar:str globalDynamoNamespace:bool minAvailable:int "
     "modelRef:ModelRef multinode:Multinode name:str podTemplate:PodTemplate providerOverride:map "
     "replicas:int roles:[map] runtimeVersionOverride:str scalingAdapter:map sharedMemorySize:qty "
     "topologyConstraint:Topology type:str"},
    {"CompilationCache", "mountPath:str pvcName:str"},
    {"Experimental", "checkpoint:map failover:FailoverBeta gpuMemoryService:GmsBeta grove:map"},
    {"FailoverBeta", "mode:str numShadows:int"},
    {"GmsBeta", "deviceClassName:str extraClientContainers:[str] extraClientPods:[map] mode:str"},
    {"PodTemplate", "metadata:ObjectMeta spec:PodSpec"},
    {"DgdAlpha",
     "annotations:{str} backendFramework:str envs:[EnvVar] labels:{str} pvcs:[Pvc] "
     "restart:Restart services:map topologyConstraint:TopologyAlpha"},
    {"EnvVar", "name:str value:str valueFrom:EnvVarSource"},
    {"EnvVarSource",
     "configMapKeyRef:KeyRef fieldRef:FieldRef fileKeyRef:map "
     "resourceFieldRef:ResourceFieldRef secretKeyRef:KeyRef"},
    {"KeyRef", "key:str name:str optional:bool"},
    {"FieldRef", "apiVersion:str fieldPath:str"},
    {"ResourceFieldRef", "containerName:str divisor:qty resource:str"},
    {"Pvc", "create:bool name:str size:qty storageClass:str volumeAccessMode:str"},
    {"Restart", "id:str strategy:RestartStrategy"},
    {"RestartStrategy", "order:[str] type:str"},
    {"ServiceAlpha",
     "annotations:{str} autoscaling:map checkpoint:CheckpointAlpha componentType:str "
     "dynamoNamespace:str envFromSecret:str envs:[EnvVar] eppConfig:EppConfig "
     "extraPodMetadata:PodMetadata extraPodSpec:ExtraPodSpec failover:FailoverAlpha "
     "frontendSidecar:FrontendSidecar globalDynamoNamespace:bool "
     "gpuMemoryService:GmsAlpha ingress:Ingress labels:{str} livenessProbe:Probe "
     "modelRef:ModelRef multinode:Multinode readinessProbe:Probe replicas:int "
     "resources:ResourcesAlpha scalingAdapter:ScalingAlpha serviceName:str "
     "sharedMemory:SharedMemory subComponentType:str topologyConstraint:Topology "
     "volumeMounts:[VolumeMountAlpha]"},
    {"CheckpointAlpha", "checkpointRef:str enabled:bool identity:CheckpointIdentity mode:str"},
    {"CheckpointIdentity",
     "backendFramework:str dtype:str dynamoVersion:str extraParameters:{str} "
     "maxModelLen:int model:str pipelineParallelSize:int tensorParallelSize:int"},
    {"EppConfig", "config:map configMapRef:KeyRef"},
    {"PodMetadata", "annotations:{str} labels:{str}"},
    {"Container",
     "args:[str] command:[str] env:[EnvVar] envFrom:[EnvFrom] image:str "
     "imagePullPolicy:str lifecycle:Lifecycle livenessProbe:Probe name:str "
     "ports:[ContainerPort] readinessProbe:Probe resizePolicy:[map] resources:Resources "
     "restartPolicy:str restartPolicyRules:[map] securityContext:SecurityContext "
     "startupProbe:Probe stdin:bool stdinOnce:bool terminationMessagePath:str "
     "terminationMessagePolicy:str tty:bool volumeDevices:[map] "
     "volumeMounts:[VolumeMount] workingDir:str"},
    {"EnvFrom", "configMapRef:SourceRef prefix:str secretRef:SourceRef"},
    {"SourceRef", "name:str optional:bool"},
    {"Lifecycle", "postStart:LifecycleHandler preStop:LifecycleHandler stopSignal:str"},
    {"LifecycleHandler", "exec:Exec httpGet:HttpGet sleep:map tcpSocket:TcpSocket"},
    {"Probe",
     "exec:Exec failureThreshold:int grpc:Grpc httpGet:HttpGet initialDelaySeconds:int "
     "periodSeconds:int successThreshold:int tcpSocket:TcpSocket "
     "terminationGracePeriodSeconds:int timeoutSeconds:int"},
    {"Exec", "command:[str]"},
    {"Grpc", "port:int service:str"},
    {"HttpGet", "host:str httpHeaders:[map] path:str port:port scheme:str"},
    {"TcpSocket", "host:str port:port"},
    {"ContainerPort", "containerPort:int hostIP:str hostPort:int name:str protocol:str"},
    {"Resources", "claims:[ContainerClaim] limits:{qty} requests:{qty}"},
    {"ContainerClaim", "name:str request:str"},
    {"SecurityContext",
     "allowPrivilegeEscalation:bool appArmorProfile:map capabilities:Capabilities "
     "privileged:bool procMount:str readOnlyRootFilesystem:bool runAsGroup:int "
     "runAsNonRoot:bool runAsUser:int seLinuxOptions:map seccompProfile:map "
     "windowsOptions:map"},
    {"Capabilities", "add:[str] drop:[str]"},
    {"VolumeMount",
     "mountPath:str mountPropagation:str name:str readOnly:bool recursiveReadOnly:str "
     "subPath:str subPathExpr:str"},
    {"FailoverAlpha", "enabled:bool mode:str numShadows:int"},
    {"FrontendSidecar", "args:[str] envFromSecret:str envs:[EnvVar] image:str"},
    {"GmsAlpha", "deviceClassName:str enabled:bool extraClientContainers:[str] mode:str"},
    {"Ingress",
     "annotations:{str} enabled:bool host:str hostPrefix:str hostSuffix:str "
     "ingressControllerClassName:str labels:{str} tls:IngressTls useVirtualService:bool "
     "virtualServiceGateway:str"},
    {"IngressTls", "secretName:str"},
    {"ModelRef", "name:str revision:str"},
    {"Multinode", "nodeCount:int"},
    {"ResourcesAlpha", "claims:[ContainerClaim] limits:AmountsAlpha requests:AmountsAlpha"},
    {"AmountsAlpha", "cpu:qty custom:{qty} gpu:qty gpuType:str memory:qty"},
    {"ScalingAlpha", "enabled:bool"},
    {"SharedMemory", "disabled:bool size:qty"},
    {"Topology", "packDomain:str"},
    {"VolumeMountAlpha", "mountPoint:str name:str useAsCompilationCache:bool"},
    {"TopologyAlpha", "packDomain:str topologyProfile:str"},
    {"PodSpec",
     "activeDeadlineSeconds:int affinity:map automountServiceAccountToken:bool "
     "containers:[Container] dnsConfig:map dnsPolicy:str enableServiceLinks:bool "
     "ephemeralContainers:[map] hostAliases:[map] hostIPC:bool hostNetwork:bool "
     "hostPID:bool hostUsers:bool hostname:str hostnameOverride:str "
     "imagePullSecrets:[NameRef] initContainers:[Container] nodeName:str "
     "nodeSelector:{str} os:map overhead:{qty} preemptionPolicy:str priority:int "
     "priorityClassName:str readinessGates:[map] resourceClaims:[ResourceClaim] "
     "resources:Resources restartPolicy:str runtimeClassName:str schedulerName:str "
     "schedulingGates:[map] securityContext:PodSecurityContext serviceAccount:str "
     "serviceAccountName:str setHostnameAsFQDN:bool shareProcessNamespace:bool "
     "subdomain:str terminationGracePeriodSeconds:int tolerations:[Toleration] "
     "topologySpreadConstraints:[map] volumes:[Volume]"},
    {"NameRef", "name:str"},
    {"ResourceClaim", "name:str resourceClaimName:str resourceClaimTemplateName:str"},
    {"PodSecurityContext",
     "appArmorProfile:map fsGroup:int fsGroupChangePolicy:str runAsGroup:int "
     "runAsNonRoot:bool runAsUser:int seLinuxChangePolicy:str seLinuxOptions:map "
     "seccompProfile:map supplementalGroups:[int] supplementalGroupsPolicy:str "
     "sysctls:[map] windowsOptions:map"},
    {"Toleration", "effect:str key:str operator:str tolerationSeconds:int value:str"},
    {"Volume",
     "awsElasticBlockStore:map azureDisk:map azureFile:map cephfs:map cinder:map "
     "configMap:map csi:map downwardAPI:map emptyDir:EmptyDir ephemeral:map fc:map "
     "flexVolume:map flocker:map gcePersistentDisk:map gitRepo:map glusterfs:map "
     "hostPath:HostPath image:map iscsi:map name:str nfs:map "
     "persistentVolumeClaim:PvcSource photonPersistentDisk:map portworxVolume:map "
     "projected:map quobyte:map rbd:map scaleIO:map secret:map storageos:map "
     "vsphereVolume:map"},
    {"EmptyDir", "medium:str sizeLimit:qty"},
    {"HostPath", "path:str type:str"},
    {"PvcSource", "claimName:str readOnly:bool"},
};

std::string_view type_name(yaml::ScalarType type) {
  switch (type) {
    case yaml::ScalarType::kNull:
      return "a null";
    case yaml::ScalarType::kBoolean:
      return "a boolean";
    case yaml::ScalarType::kInteger:
    case yaml::ScalarType::kFloat:
      return "a number";
    case yaml::ScalarType::kTimestamp:
      return "a date";
    case yaml::ScalarType::kMerge:
    case yaml::ScalarType::kString:
      break;
  }
  return "a string";
}

/// Describes a value: "a list", "'5': a number".
std::string described(const yaml::Node& node) {
  if (node.is_list()) return "a list";
  if (node.is_map()) return "a map";
  if (node.is_null()) return "a null";
  return fmt::format(
      "{}: {}", base::quoted(node.text()),
      type_name(node.is_plain() ? yaml::type_of(node.text()) : yaml::ScalarType::kString));
}

class Checker {
 public:
  Checker(WrongKind wrong_kind, Findings& findings)
      : wrong_kind_(wrong_kind), findings_(findings) {}

  void check(const yaml::Node& node, std::string_view type, const std::string& path) {
    if (type.empty()) return;
    if (type.front() == '[') {
      if (!wants(node.is_list(), node, path, "a list")) return;
      for (std::size_t i = 0; i < node.items().size(); ++i) {
        check(node.items()[i], inner(type), item_path(path, i));
      }
    } else if (type.front() == '{') {
      if (!wants(node.is_map(), node, path, "a map")) return;
      for (const yaml::Node::Member& member : node.members()) {
        if (member.value.is_null()) continue;
        check(member.value, inner(type), member_path(path, member.key));
      }
    } else if (type == "str") {
      wants(yaml::as_string(node).has_value(), node, path, "a string",
            node.is_scalar() && !node.is_null() ? "put it in quotes" : "");
    } else if (type == "int") {
      wants(yaml::as_integer(node).has_value(), node, path, "a whole number",
            yaml::as_integer(node, yaml::Quoted::kYes) ? "leave the quotes out" : "");
    } else if (type == "bool") {
      wants(yaml::as_boolean(node).has_value(), node, path, "true or false",
            node.text() == "true" || node.text() == "false" ? "leave the quotes out" : "");
    } else if (type == "port") {
      wants(yaml::as_integer(node) || yaml::as_string(node), node, path, "a port's number or name");
    } else if (type == "qty") {
      wants(node.is_scalar() &&
                (is_quantity(node.text()) || yaml::as_integer(node).value_or(-1) >= 0),
            node, path, "a quantity", "quantities are like \"2\", \"500m\" or \"8Gi\"");
    } else if (wants(node.is_map(), node, path, "a map") && type != "map") {
      check_fields(node, type, path);
    }
  }

 private:
  static std::string_view inner(std::string_view type) { return type.substr(1, type.size() - 2); }

  bool wants(bool ok, const yaml::Node& node, const std::string& path, std::string_view what,
             std::string_view remedy = {}) {
    if (!ok && wrong_kind_ == WrongKind::kError) {
      if (node.text().starts_with("${")) remedy = "fill it in first: envsubst < FILE";
      add(findings_, {Severity::kError, node.position(), path,
                      fmt::format("{}, expected {}", described(node), what), std::string(remedy)});
    }
    return ok;
  }

  void check_fields(const yaml::Node& node, std::string_view type, const std::string& path) {
    const std::vector<SchemaField> fields = fields_of(type);
    for (const yaml::Node::Member& member : node.members()) {
      if (member.value.is_null()) continue;
      const auto field = std::find_if(fields.begin(), fields.end(), [&](const SchemaField& one) {
        return one.name == member.key;
      });
      if (field != fields.end()) {
        check(member.value, field->type, member_path(path, member.key));
      } else {
        report_unknown(member, fields, path);
      }
    }
  }

  void report_unknown(const yaml::Node::Member& member, const std::vector<SchemaField>& fields,
                      const std::string& path) {
    if (findings_.size() >= kMaxFindings) return;
    std::vector<std::string_view> names;
    names.reserve(fields.size());
    for (const SchemaField& field : fields) names.push_back(field.name);
    const std::optional<std::string_view> near = text::nearest_name(member.key, names);
    add(findings_, {Severity::kWarning, member.position, member_path(path, member.key),
                    std::string(kUnknownField),
                    near ? fmt::format("did you mean {}?", base::quoted(*near)) : std::string()});
  }

  WrongKind wrong_kind_;
  Findings& findings_;
};

}  // namespace

std::vector<SchemaField> fields_of(std::string_view type) {
  std::vector<SchemaField> fields;
  if (type == "ExtraPodSpec") {
    fields = fields_of("PodSpec");
    fields.push_back({"mainContainer", "Container"});
  }
  for (const SchemaType& one : kTypes) {
    if (one.name != type) continue;
    for (std::string_view rest = one.fields; !rest.empty();) {
      const std::string_view word = rest.substr(0, rest.find(' '));
      rest.remove_prefix(std::min(word.size() + 1, rest.size()));
      const std::size_t colon = word.find(':');
      fields.push_back({word.substr(0, colon), colon == std::string_view::npos
                                                   ? std::string_view()
                                                   : word.substr(colon + 1)});
    }
  }
  return fields;
}

void check_schema(const yaml::Node& node, std::string_view type, const std::string& path,
                  WrongKind wrong_kind, Findings& findings) {
  Checker(wrong_kind, findings).check(node, type, path);
}

}  // namespace fo::pod
