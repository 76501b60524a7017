// Kubernetes' API as text, for objects of any kind: requests to an API server, and its answers.
// Pure.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/strong.h"

namespace fo::kube {

/// Maximum sizes of an object and of a list. An API server stores objects of up to 1.5 MiB, and a
/// list is read in pages.
inline constexpr base::ByteCount kMaxObjectBytes = 4 * base::kMiB;
inline constexpr base::ByteCount kMaxListBytes = 64 * base::kMiB;

/// A kind of objects: "coordination.k8s.io", "v1", "leases", "Lease". Core kinds such as ConfigMap
/// have an empty group.
struct Resource {
  std::string group;
  std::string version;
  std::string plural;
  std::string kind;
};

/// The objects of one kind in one namespace; without a namespace, the objects of all namespaces, or
/// of a kind that has none.
struct Collection {
  Resource resource;
  std::string name_space;
};

/// Formats "Lease 'namespace/name'" for messages.
std::string describe(const Collection& collection, std::string_view name);

/// The path for creating and listing objects.
std::string path_of(const Collection& collection);
/// The path for reading and replacing one object.
std::string path_of(const Collection& collection, std::string_view name);

/// A selection of objects; empty members select all.
struct Selection {
  /// A label selector, such as "key=value,key2!=value".
  std::string labels = {};
  /// A field selector, such as "metadata.name=pair".
  std::string fields = {};
};
/// The path of one page: at most `limit` objects (0: all), continued from the `next` of the page
/// before.
std::string list_path(const Collection& collection, const Selection& selection, std::size_t limit,
                      std::string_view next = {});
/// The path for changes since `resource_version`, for up to `timeout`.
std::string watch_path(const Collection& collection, const Selection& selection,
                       std::string_view resource_version, std::chrono::seconds timeout);

struct Object {
  std::string name;
  std::string name_space;
  /// The version of the object; empty only in bookmarks, and in lists if the server leaves it out.
  std::string resource_version;
  /// The whole object, as JSON.
  std::string text;
};

/// Throws Error(kProtocol), "`what`: reason", for an invalid object or one of another kind.
Object decode_object(std::string_view body, const Resource& resource, const std::string& what);

struct List {
  std::vector<Object> objects;
  /// The version from which a watch continues.
  std::string resource_version;
  /// The continuation for the next page; empty on the last one.
  std::string next;
};
/// Throws Error(kProtocol). Servers leave out the kind and version of items, so they are added.
List decode_list(std::string_view body, const Resource& resource, const std::string& what);

/// The object that an API server answers with if a request fails. A proxy in front of it, such as a
/// load balancer, may answer with something else.
struct Status {
  /// One line.
  std::string message;
  /// "NotFound", "Conflict" and the like; empty: none.
  std::string reason;
  /// The object in question: the plural of its kind, such as "leases", and its name; empty if
  /// missing.
  std::string kind;
  std::string name;
  /// The HTTP status; 0 if missing.
  int code = 0;
};
/// nullopt for an answer that is not a Status.
std::optional<Status> decode_status(std::string_view body);
/// Whether the Status reports that the object with this name and kind (`plural`) does not exist.
bool reports_absent(const std::optional<Status>& status, std::string_view plural,
                    std::string_view name);

/// One line of a watch.
struct WatchEvent {
  enum class Kind {
    kAdded,
    kModified,
    kDeleted,
    kBookmark,  // the watch continues; contains the current resource version
    kExpired,   // the watch cannot continue from this version: list again
    kFailed,    // the watch ends
  };
  Kind kind = Kind::kFailed;
  /// The object for the first three kinds; only the resource version for a bookmark.
  Object object;
  /// The reason of kFailed, in one line.
  std::string reason;
};
/// Throws Error(kProtocol).
WatchEvent decode_watch_event(std::string_view line, const Resource& resource,
                              const std::string& what);

}  // namespace fo::kube
