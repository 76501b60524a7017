// What the readers of both versions share: the rules for a service with failover, and how what a
// DGD says beside a pod is merged into it. Internal to dgd.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "pod/dgd/dgd.h"
#include "pod/finding.h"
#include "pod/located.h"
#include "pod/pod_rules.h"
#include "yaml/node.h"

namespace fo::pod {

/// What a service with failover says, each where its version says it.
struct ServiceParts {
  Located service;
  Located component_type;
  Located multinode;
  Located failover;
  Located gpu_memory_service;
  /// Of the main container; without a path where there is none to have them.
  Located gpus;
  PodParts pod;
};

/// Reads failover, GMS and GPUs into `service`, whose pod_template is made, and adds what is
/// refused.
void check_service(const ServiceParts& parts, DgdVersion version, Service& service,
                   Findings& findings);

/// Whether a service with failover may follow those of `dgd`; otherwise one finding says why not.
bool has_room(const Dgd& dgd, const Service& service, Findings& findings);

/// Names of ports that Dynamo's operator gives a main container that says none.
std::vector<std::string> operator_ports(const Located& main);

/// Of a boolean; false where there is none.
bool is_true(const Located& located);

/// Warns of those members that only Dynamo's operator acts on.
void warn_not_carried(const Located& map, std::initializer_list<std::string_view> members,
                      Findings& findings);

/// 1 where there is none.
std::int64_t read_replicas(const Located& replicas, Findings& findings);

/// Lists of EnvVar, each winning over those before it: what it names again is dropped from them,
/// so that its order, on which $(NAME) depends, stays. A null where there is none.
yaml::Node merge_env(std::initializer_list<const yaml::Node*> lists);

/// The members of `from`, when it is a map, into the map `into`, in whose place they are.
void merge_map(yaml::Node& into, const yaml::Node* from);

/// An emptyDir in memory at /dev/shm, of that size (8Gi for none, as Dynamo's operator has it). It
/// takes the place of what the container mounts there, as with that operator, which is said.
void share_memory(yaml::Node& pod_spec, yaml::Node& container, const yaml::Node* size,
                  const Located& asked_by, PodParts& parts, Findings& findings);

/// A mount of the volume at `path`, which no other mount may have.
void add_mount(yaml::Node& container, const std::string& volume, const yaml::Node& path,
               const Located& asked_by, Findings& findings);

/// The PVC as a volume of its name.
void add_claim_volume(yaml::Node& pod_spec, const yaml::Node& pvc, PodParts& parts);

/// Warns of a compilation cache at `path` that no variable of the container names: which one does
/// is up to the backend, and Dynamo's operator sets it.
void warn_of_cache(const Located& cache, const yaml::Node& container, const std::string& path,
                   Findings& findings);

/// Of all services, into `dgd`. Both leave what is wrong to `findings`.
void read_v1alpha1(const Located& spec, Dgd& dgd, Findings& findings);
void read_v1beta1(const Located& spec, Dgd& dgd, Findings& findings);

}  // namespace fo::pod
