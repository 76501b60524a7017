#include "kube/api.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "http/message.h"
#include "json/object.h"
#include "kube/reading.h"

namespace fo::kube {
namespace {

using fo::json::Misfit;
using fo::json::object_in;
using fo::json::text_in;
using http::encode_parameter;
using nlohmann::json;

constexpr std::size_t kMaxResourceVersion = 256;
constexpr std::size_t kMaxContinue = std::size_t{16} * 1024;
constexpr std::size_t kMaxMessage = 512;
constexpr std::uint64_t kMaxNumber = 0x7fffffff;

std::string api_version(const Resource& resource) {
  return resource.group.empty() ? resource.version : resource.group + "/" + resource.version;
}

// "&key=value" for each non-empty part.
std::string query_of(const Selection& selection) {
  std::string query;
  if (!selection.labels.empty()) query += "&labelSelector=" + encode_parameter(selection.labels);
  if (!selection.fields.empty()) query += "&fieldSelector=" + encode_parameter(selection.fields);
  return query;
}

std::string resource_version_in(const json& metadata) {
  std::string version = text_in(metadata, "resourceVersion");
  if (version.size() > kMaxResourceVersion) throw Misfit("resourceVersion: too long");
  return version;
}

Status status_of(const json& object) {
  const json& details = object_in(object, "details");
  return {base::one_line(text_in(object, "message"), kMaxMessage), text_in(object, "reason"),
          text_in(details, "kind"), text_in(details, "name"),
          static_cast<int>(number_in(object, "code").value_or(0))};
}

WatchEvent failure_of(const json& object) {
  const Status status = status_of(object);
  constexpr int kGone = 410;
  if (status.code == kGone) return {WatchEvent::Kind::kExpired, {}, status.message};
  return {WatchEvent::Kind::kFailed, {}, status.message};
}

}  // namespace

std::optional<std::uint64_t> number_in(const json& object, const char* key) {
  const json* found = fo::json::find(object, key);
  if (found == nullptr) return std::nullopt;
  if (!found->is_number_unsigned() || found->get<std::uint64_t>() > kMaxNumber) {
    throw Misfit(std::string(key) + ": expected a number from 0 to 2147483647");
  }
  return found->get<std::uint64_t>();
}

Object decode_object(const json& object, const Resource& resource) {
  if (text_in(object, "kind") != resource.kind ||
      text_in(object, "apiVersion") != api_version(resource)) {
    throw Misfit("no " + resource.kind + " of " + api_version(resource));
  }
  const json& metadata = object_in(object, "metadata");
  Object read{text_in(metadata, "name"), text_in(metadata, "namespace"),
              resource_version_in(metadata), fo::json::dump(object)};
  if (read.name.empty()) throw Misfit("an object without a name");
  if (read.resource_version.empty()) throw Misfit("missing resourceVersion");
  return read;
}

std::string describe(const Collection& collection, std::string_view name) {
  const std::string& space = collection.name_space;
  return collection.resource.kind + " " +
         base::quoted(space.empty() ? std::string(name) : space + "/" + std::string(name));
}

std::string path_of(const Collection& collection) {
  const Resource& resource = collection.resource;
  std::string path =
      resource.group.empty() ? "/api/" : "/apis/" + encode_parameter(resource.group) + "/";
  path += encode_parameter(resource.version);
  if (!collection.name_space.empty())
    path += "/namespaces/" + encode_parameter(collection.name_space);
  return path + "/" + encode_parameter(resource.plural);
}

std::string path_of(const Collection& collection, std::string_view name) {
  return path_of(collection) + "/" + encode_parameter(name);
}

std::string list_path(const Collection& collection, const Selection& selection, std::size_t limit,
                      std::string_view next) {
  std::string query = query_of(selection);
  if (limit > 0) query += "&limit=" + std::to_string(limit);
  if (!next.empty()) query += "&continue=" + encode_parameter(next);
  if (!query.empty()) query.front() = '?';
  return path_of(collection) + query;
}

std::string watch_path(const Collection& collection, const Selection& selection,
                       std::string_view resource_version, std::chrono::seconds timeout) {
  return path_of(collection) + "?watch=1&allowWatchBookmarks=true" + query_of(selection) +
         "&resourceVersion=" + encode_parameter(resource_version) +
         "&timeoutSeconds=" + std::to_string(timeout.count());
}

Object decode_object(std::string_view body, const Resource& resource, const std::string& what) {
  return fo::json::read_object(
      body, kMaxObjectBytes, [&] { return what; },
      [&](const json& object) { return decode_object(object, resource); });
}

List decode_list(std::string_view body, const Resource& resource, const std::string& what) {
  const auto read = [&](const json& object) {
    if (text_in(object, "kind") != resource.kind + "List" ||
        text_in(object, "apiVersion") != api_version(resource)) {
      throw Misfit("no list of " + resource.plural);
    }
    const json& metadata = object_in(object, "metadata");
    List list;
    list.resource_version = resource_version_in(metadata);
    if (list.resource_version.empty()) throw Misfit("missing resourceVersion");
    list.next = text_in(metadata, "continue");
    if (list.next.size() > kMaxContinue) throw Misfit("continue: too long");
    for (const json& item : fo::json::list_in(object, "items")) {
      json whole{{"apiVersion", api_version(resource)}, {"kind", resource.kind}};
      whole.update(item);
      list.objects.push_back(decode_object(whole, resource));
    }
    return list;
  };
  return fo::json::read_object(
      body, kMaxListBytes, [&] { return what; }, read);
}

std::optional<Status> decode_status(std::string_view body) {
  try {
    const json object = fo::json::parse_object(body, kMaxObjectBytes);
    if (text_in(object, "kind") != "Status") return std::nullopt;
    return status_of(object);
  } catch (const Misfit&) {
    return std::nullopt;
  }
}

bool reports_absent(const std::optional<Status>& status, std::string_view plural,
                    std::string_view name) {
  return status && status->reason == "NotFound" && status->kind == plural && status->name == name;
}

WatchEvent decode_watch_event(std::string_view line, const Resource& resource,
                              const std::string& what) {
  using Kind = WatchEvent::Kind;
  const auto read = [&](const json& event) -> WatchEvent {
    const std::string type = text_in(event, "type");
    const json& object = object_in(event, "object");
    if (type == "ADDED") return {Kind::kAdded, decode_object(object, resource), ""};
    if (type == "MODIFIED") return {Kind::kModified, decode_object(object, resource), ""};
    if (type == "DELETED") return {Kind::kDeleted, decode_object(object, resource), ""};
    if (type == "ERROR") return failure_of(object);
    if (type != "BOOKMARK") return {Kind::kFailed, {}, "an event of type " + base::quoted(type)};
    WatchEvent bookmark{Kind::kBookmark, {}, ""};
    bookmark.object.resource_version = resource_version_in(object_in(object, "metadata"));
    return bookmark;
  };
  return fo::json::read_object(
      line, kMaxObjectBytes, [&] { return what; }, read);
}

}  // namespace fo::kube
