#include "pod/dgd/pod_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>

#include "base/error.h"
#include "text/nearest_name.h"
#include "yaml/scalar.h"

namespace fo::pod {
namespace {

struct SchemaType {
  std::string_view name;
  /// "NAME:TYPE NAME:TYPE …"; NAME alone for any type.
  std::string_view fields;
  /// Whether fields that are not listed here are passed through without a warning.
  bool is_open = false;
};

constexpr bool kOpen = true;

constexpr SchemaType kTypes[] = {
    {"Dgd", "apiVersion:str kind:str metadata:ObjectMeta spec status"},
    {"ObjectMeta",
     "annotations:{str} creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers "
     "generateName:str generation labels:{str} managedFields name:str namespace:str "
     "ownerReferences resourceVersion selfLink uid"},
    {"DgdBeta",
     "annotations:{str} backendFramework:str components:[map] env:[EnvVar] experimental:map "
     "labels:{str} priorityClassName:str providerOverride:map restart:map topologyConstraint:map"},
    {"Component",
     "compilationCache:CompilationCache dynamoSidecar:str eppConfig:map "
     "experimental:Experimental frontendSidecar:str globalDynamoNamespace:bool minAvailable:int "
     "modelRef:map multinode:map name:str podTemplate:PodTemplate providerOverride:map "
     "replicas:int roles:[map] runtimeVersionOverride:str scalingAdapter:map sharedMemorySize:qty "
     "topologyConstraint:map type:str"},
    {"CompilationCache", "mountPath:str pvcName:str"},
    {"Experimental", "checkpoint:map failover:FailoverBeta gpuMemoryService:GmsBeta grove:map"},
    {"FailoverBeta", "mode:str numShadows:int"},
    {"GmsBeta", "deviceClassName:str extraClientContainers:[str] extraClientPods:[map] mode:str"},
    {"PodTemplate", "metadata:ObjectMeta spec:PodSpec"},
    {"DgdAlpha",
     "annotations:{str} backendFramework:str envs:[EnvVar] labels:{str} pvcs:[Pvc] "
     "restart:map services:map topologyConstraint:map"},
    {"Pvc", "create:bool name:str size:qty storageClass:str volumeAccessMode:str"},
    {"ServiceAlpha",
     "annotations:{str} autoscaling:map checkpoint:map componentType:str "
     "dynamoNamespace:str envFromSecret:str envs:[EnvVar] eppConfig:map "
     "extraPodMetadata:PodMetadata extraPodSpec:ExtraPodSpec failover:FailoverAlpha "
     "frontendSidecar:map globalDynamoNamespace:bool "
     "gpuMemoryService:GmsAlpha ingress:map labels:{str} livenessProbe:Probe "
     "modelRef:map multinode:map readinessProbe:Probe replicas:int "
     "resources:ResourcesAlpha scalingAdapter:map serviceName:str "
     "sharedMemory:SharedMemory subComponentType:str topologyConstraint:map "
     "volumeMounts:[VolumeMountAlpha]"},
    {"PodMetadata", "annotations:{str} labels:{str}"},
    {"FailoverAlpha", "enabled:bool mode:str numShadows:int"},
    {"GmsAlpha", "deviceClassName:str enabled:bool extraClientContainers:[str] mode:str"},
    {"ResourcesAlpha", "claims:[map] limits:AmountsAlpha requests:AmountsAlpha"},
    {"AmountsAlpha", "cpu:qty custom:{qty} gpu:qty gpuType:str memory:qty"},
    {"SharedMemory", "disabled:bool size:qty"},
    {"VolumeMountAlpha", "mountPoint:str name:str useAsCompilationCache:bool"},
    {"PodSpec",
     "containers:[Container] hostNetwork:bool hostPID:bool initContainers:[Container] "
     "resourceClaims:[ResourceClaim] restartPolicy:str securityContext:SecurityContext "
     "serviceAccount:str serviceAccountName:str shareProcessNamespace:bool "
     "terminationGracePeriodSeconds:int tolerations:[map] volumes:[Volume]",
     kOpen},
    {"Container",
     "args:[str] command:[str] env:[EnvVar] envFrom:[map] image:str lifecycle:map "
     "livenessProbe:Probe name:str ports:[ContainerPort] readinessProbe:Probe "
     "resources:Resources securityContext:SecurityContext startupProbe:Probe "
     "volumeMounts:[VolumeMount]",
     kOpen},
    {"EnvVar", "name:str value:str valueFrom:map", kOpen},
    {"Probe", "exec:Exec grpc:map httpGet:HttpGet tcpSocket:TcpSocket", kOpen},
    {"Exec", "command:[str]", kOpen},
    {"HttpGet", "path:str port:port scheme:str", kOpen},
    {"TcpSocket", "port:port", kOpen},
    {"ContainerPort", "containerPort:int hostPort:int name:str protocol:str", kOpen},
    {"Resources", "claims:[map] limits:{qty} requests:{qty}", kOpen},
    {"SecurityContext", "runAsUser:int", kOpen},
    {"VolumeMount", "mountPath:str name:str", kOpen},
    {"ResourceClaim", "name:str", kOpen},
    {"Volume", "name:str", kOpen},
};

const SchemaType* find_type(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                         [&](const SchemaType& one) { return one.name == name; });
  return found == std::end(kTypes) ? nullptr : found;
}

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
      wants(node.is_scalar(), node, path, "a quantity",
            "quantities are like \"2\", \"500m\" or \"8Gi\"");
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
      } else if (!is_open(type)) {
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
  const SchemaType* const found = find_type(type);
  for (std::string_view rest = found == nullptr ? "" : found->fields; !rest.empty();) {
    const std::string_view word = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(word.size() + 1, rest.size()));
    const std::size_t colon = word.find(':');
    fields.push_back({word.substr(0, colon), colon == std::string_view::npos
                                                 ? std::string_view()
                                                 : word.substr(colon + 1)});
  }
  return fields;
}

bool is_open(std::string_view type) {
  const SchemaType* const found = find_type(type == "ExtraPodSpec" ? "PodSpec" : type);
  return found != nullptr && found->is_open;
}

void check_schema(const yaml::Node& node, std::string_view type, const std::string& path,
                  WrongKind wrong_kind, Findings& findings) {
  Checker(wrong_kind, findings).check(node, type, path);
}

}  // namespace fo::pod
