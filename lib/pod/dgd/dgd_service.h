// Shared by the readers of both versions: the rules for a service with failover, and the merge of a
// DGD's fields into its pod. Internal to dgd.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "pod/dgd/dgd.h"
#include "pod/finding.h"
#include "pod/located.h"
#include "yaml/node.h"

namespace fo::pod {

/// The fields of a service with failover, located where its version has them.
struct ServiceParts {
  Located service;
  Located component_type;
  Located multinode;
  Located failover;
  Located gpu_memory_service;
  /// The GPUs of the main container; without a path if there is no main container.
  Located gpus;
  /// The main container first, then init containers and the others.
  std::vector<Located> containers;
  Located restart_policy;
};

/// Reads failover, GMS and GPUs into `service`, whose pod_template must exist, and adds errors for
/// invalid values, and for containers that the generator cannot use.
void check_service(const ServiceParts& parts, DgdVersion version, Service& service,
                   Findings& findings);

/// Whether a service with failover can be added to `dgd`; otherwise adds one finding with the
/// reason.
bool has_room(const Dgd& dgd, const Service& service, Findings& findings);

/// Refuses a probe of a port by a name that the container does not have: the API server accepts it,
/// and the probe fails in the pod.
void check_probe(const Located& probe, const Located& container, Findings& findings);

/// Warns of members that only Dynamo's operator implements, unless their `enabled` is false.
void warn_not_carried(const Located& map, std::initializer_list<std::string_view> members,
                      Findings& findings);

/// The number of replicas; 1 if it is missing or not a whole number. Adds an error for a number
/// below 0 or over 2^31-1.
std::int64_t read_replicas(const Located& replicas, Findings& findings);

/// Merges lists of EnvVar. A later list overrides earlier ones: its names are dropped from them, so
/// that its own order, on which $(NAME) depends, is kept. A null if there are no entries.
yaml::Node merge_env(std::initializer_list<const yaml::Node*> lists);

/// Copies the members of `from` that are not null, if it is a map, into `into`, where they replace
/// members with the same key.
void merge_map(yaml::Node& into, const yaml::Node* from);

/// Mounts an emptyDir in memory at /dev/shm, of size `size` (default 8Gi, as in Dynamo's operator).
/// Replaces the container's own mount there with a warning, as that operator does. Adds an error if
/// another volume has the name of the new one.
void share_memory(yaml::Node& pod_spec, yaml::Node& container, const yaml::Node* size,
                  const Located& asked_by, Findings& findings);

/// Mounts the volume at `path`; adds an error instead if the container has a mount there.
void add_mount(yaml::Node& container, const std::string& volume, const yaml::Node& path,
               const Located& asked_by, Findings& findings);

/// Adds a volume for the PVC with the name `pvc`, which is the volume's name, too.
void add_claim_volume(yaml::Node& pod_spec, const yaml::Node& pvc);

/// Warns of a compilation cache at `path` that no variable of the container refers to: the variable
/// depends on the backend, and Dynamo's operator sets it.
void warn_of_cache(const Located& cache, const yaml::Node& container, const std::string& path,
                   Findings& findings);

/// Read all services into `dgd`, and add errors to `findings`.
void read_v1alpha1(const Located& spec, Dgd& dgd, Findings& findings);
void read_v1beta1(const Located& spec, Dgd& dgd, Findings& findings);

}  // namespace fo::pod
