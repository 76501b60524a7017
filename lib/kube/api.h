// Kubernetes' API as text, for objects of any kind: what is asked of an API server, and what its
// answers say; pure.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/strong.h"

namespace fo::kube {

/// The longest object that is read, and the longest list: an API server stores objects of 1.5 MiB,
/// and a list is asked for in pages.
inline constexpr base::ByteCount kMaxObjectBytes = 4 * base::kMiB;
inline constexpr base::ByteCount kMaxListBytes = 64 * base::kMiB;

/// A kind of objects: "coordination.k8s.io", "v1", "leases", "Lease". The group of ConfigMaps and
/// the like is empty.
struct Resource {
  std::string group;
  std::string version;
  std::string plural;
  std::string kind;
};

/// Objects of one kind in one namespace; without a namespace those of all, or those that are in
/// none.
struct Collection {
  Resource resource;
  std::string name_space;
};

/// "Lease 'namespace/name'", for messages.
std::string describe(const Collection& collection, std::string_view name);

/// Where objects are created and listed.
std::string path_of(const Collection& collection);
/// Where one is read, replaced, patched and deleted.
std::string path_of(const Collection& collection, std::string_view name);

/// Which objects. Empty texts say nothing.
struct Selection {
  /// "key=value,key2!=value" and the like.
  std::string labels = {};
  /// "metadata.name=pair" and the like.
  std::string fields = {};
};
/// One page: `limit` objects (0: all) after those that `next`, of the page before, stands for.
std::string list_path(const Collection& collection, const Selection& selection, std::size_t limit,
                      std::string_view next = {});
/// Where one is patched, by that manager of fields ("": by nobody who is named).
std::string patch_path(const Collection& collection, std::string_view name,
                       std::string_view manager, bool is_forced);
/// Changes since `resource_version`, for up to `timeout`.
std::string watch_path(const Collection& collection, const Selection& selection,
                       std::string_view resource_version, std::chrono::seconds timeout);

struct Object {
  std::string name;
  std::string name_space;
  /// As of which change it is; empty only in bookmarks and where the server left it out of a list.
  std::string resource_version;
  /// All of it, as JSON.
  std::string text;
};

/// Throws Error(kProtocol), "`what`: reason", for what is no such object.
Object decode_object(std::string_view body, const Resource& resource, const std::string& what);

struct List {
  std::vector<Object> objects;
  /// Where a watch goes on.
  std::string resource_version;
  /// What the next page is asked with; empty: this is the last one.
  std::string next;
};
/// Throws Error(kProtocol); items get the kind and version that a server leaves out of them.
List decode_list(std::string_view body, const Resource& resource, const std::string& what);

/// What an API server answers instead of what was asked for. Whoever stands before it and answers
/// on its own, a load balancer above all, answers with something else.
struct Status {
  /// In one line.
  std::string message;
  /// "NotFound", "Conflict" and the like; empty: none.
  std::string reason;
  /// What it is about, as "leases" and its name; empty: not said.
  std::string kind;
  std::string name;
  /// 404 and the like; 0: not said.
  int code = 0;
};
/// nullopt for an answer that is no Status.
std::optional<Status> decode_status(std::string_view body);
/// Whether it says that there is no such object, of the kind that `plural` names.
bool says_absent(const std::optional<Status>& status, std::string_view plural,
                 std::string_view name);

/// The body of a deletion that is refused once the object has another resource version.
std::string encode_precondition(const std::string& resource_version);

/// What a line of a watch says.
struct WatchEvent {
  enum class Kind {
    kAdded,
    kModified,
    kDeleted,
    kBookmark,  // that it is still there, and as of which change
    kExpired,   // that it can't go on from there: list anew
    kFailed,    // that it ends
  };
  Kind kind = Kind::kFailed;
  /// Of the first three; of a bookmark only the resource version.
  Object object;
  /// Of kFailed: why, in one line.
  std::string reason;
};
/// Throws Error(kProtocol).
WatchEvent decode_watch_event(std::string_view line, const Resource& resource,
                              const std::string& what);

}  // namespace fo::kube
