#include "kube/client.h"

#include <algorithm>
#include <chrono>
#include <iterator>

#include "net/line_buffer.h"

namespace fo::kube {
namespace {

using base::Deadline;
using base::Duration;
using base::Error;
using base::ExitStatus;
using boost::asio::awaitable;
using std::chrono::seconds;

constexpr Duration kMaxRetryAfter = seconds(5);
// Limits of all bytes of one watch, and of the stored part of an error answer.
constexpr base::ByteCount kMaxWatched = base::kGiB;
constexpr std::size_t kMaxRefusal = std::size_t{64} * 1024;
// Without a timeout, an API server lets a watch run for half an hour or more.
constexpr Duration kMaxWatchTime = std::chrono::minutes(5);
constexpr std::size_t kPage = 100;
// Maximum number of lists if the continuation expires before the last page.
constexpr int kMaxLists = 3;

bool is_success(const http::Response& answer) {
  return answer.status == 200 || answer.status == 201;
}

std::string reason_of(const http::Response& answer, const std::optional<Status>& status) {
  return "the API server answers " + std::to_string(answer.status) +
         (status && !status->message.empty() ? ": " + status->message : "");
}

ExitStatus status_of(const http::Response& answer, const std::optional<Status>& status) {
  if (status && status->reason == "NotFound" && status->kind == "namespaces") {
    return ExitStatus::kNoInput;
  }
  switch (answer.status) {
    case 401:
    case 403:
      return ExitStatus::kNotPermitted;
    case 404:
    case 408:
    case 409:
    case 410:
    case 425:
    case 429:
      return ExitStatus::kUnavailable;
    default:
      return answer.status >= 500 ? ExitStatus::kUnavailable : ExitStatus::kProtocol;
  }
}

Duration retry_after(const http::Response& answer) {
  const auto header = answer.header("Retry-After");
  const auto count = header ? base::parse_uint(*header) : std::nullopt;
  const auto max = static_cast<std::uint64_t>(kMaxRetryAfter / seconds(1));
  return seconds(std::min(count.value_or(0), max));
}

std::string doing(const char* verb, const Collection& collection, std::string_view name) {
  return std::string(verb) + " " + describe(collection, name);
}

std::string doing(const char* verb, const Collection& collection) {
  const std::string what = std::string(verb) + " " + collection.resource.plural;
  const std::string& space = collection.name_space;
  return space.empty() ? what : what + " in " + base::quoted(space);
}

Object read_object(const http::Response& answer, const Collection& from, const std::string& name,
                   const std::string& what) {
  Object object = decode_object(answer.body, from.resource, what);
  if (object.name != name || object.name_space != from.name_space) {
    throw Error(ExitStatus::kProtocol, what + ": the API server returned a different object");
  }
  return object;
}

}  // namespace

Refused::Refused(const std::string& what, const http::Response& answer)
    : Error(status_of(answer, decode_status(answer.body)),
            what + ": " + reason_of(answer, decode_status(answer.body))),
      http_status_(answer.status),
      status_(decode_status(answer.body)),
      retry_after_(kube::retry_after(answer)) {}

http::FetchOptions Client::options_for() const {
  http::FetchOptions options;
  if (config_.server.starts_with("https://")) options.tls = config_.tls;
  options.headers.emplace_back("Accept", "application/json");
  if (!config_.token_file.empty()) {
    options.headers.emplace_back("Authorization", "Bearer " + read_token(config_.token_file));
  }
  return options;
}

awaitable<http::Response> Client::ask(std::string method, std::string path, std::string body,
                                      Deadline deadline, base::ByteCount limit) {
  http::FetchOptions options = options_for();
  options.response_limit = limit;
  options.body = std::move(body);
  std::string url = config_.server + path;
  http::Response answer =
      co_await http::async_fetch(std::move(method), std::move(url), deadline, std::move(options));
  co_return answer;
}

awaitable<std::optional<Object>> Client::get(Collection from, std::string name, Deadline deadline) {
  const std::string what = doing("get", from, name);
  std::string method = "GET";
  std::string path = path_of(from, name);
  std::string nothing;
  const http::Response answer =
      co_await ask(std::move(method), std::move(path), std::move(nothing), deadline);
  if (is_success(answer)) co_return read_object(answer, from, name, what);
  // A proxy's 404, such as that of a load balancer without servers, does not mean that the object
  // is missing.
  const bool is_absent = answer.status == 404 &&
                         reports_absent(decode_status(answer.body), from.resource.plural, name);
  if (!is_absent) throw Refused(what, answer);
  co_return std::nullopt;
}

awaitable<List> Client::list(Collection of, Selection selection, std::size_t limit,
                             std::string next, Deadline deadline) {
  const std::string what = doing("list", of);
  std::string method = "GET";
  std::string path = list_path(of, selection, limit, next);
  std::string nothing;
  const http::Response answer =
      co_await ask(std::move(method), std::move(path), std::move(nothing), deadline, kMaxListBytes);
  if (!is_success(answer)) throw Refused(what, answer);
  co_return decode_list(answer.body, of.resource, what);
}

awaitable<List> Client::list_all(Collection of, Selection selection, Deadline deadline,
                                 std::size_t max_objects) {
  List all;
  for (int lists = 1;;) {
    List page;
    bool is_expired = false;
    try {
      std::string next = all.next;
      page = co_await list(of, selection, kPage, std::move(next), deadline);
    } catch (const Refused& refused) {
      is_expired = refused.http_status() == 410 && !all.next.empty() && lists < kMaxLists;
      if (!is_expired) throw;
    }
    if (is_expired) {
      all = {};
      ++lists;
      continue;
    }
    std::move(page.objects.begin(), page.objects.end(), std::back_inserter(all.objects));
    all.resource_version = std::move(page.resource_version);
    all.next = std::move(page.next);
    if (all.objects.size() > max_objects) {
      throw Error(ExitStatus::kProtocol,
                  doing("list", of) + ": more than " + std::to_string(max_objects));
    }
    if (all.next.empty()) co_return all;
  }
}

awaitable<Client::Written> Client::write(std::string what, std::string method, std::string path,
                                         Collection in, std::string name, std::string body,
                                         Deadline deadline) {
  const http::Response answer =
      co_await ask(std::move(method), std::move(path), std::move(body), deadline);
  Written written;
  if (is_success(answer)) {
    written.object = read_object(answer, in, name, what);
    co_return written;
  }
  const Refused refused(what, answer);
  written.reason = refused.what();
  if (answer.status == 409) {
    written.outcome = Written::Outcome::kConflict;
  } else if (answer.status == 404 &&
             reports_absent(refused.status_object(), in.resource.plural, name)) {
    written.outcome = Written::Outcome::kAbsent;
  } else {
    throw Refused(refused);
  }
  co_return written;
}

awaitable<Client::Written> Client::create(Collection in, std::string name, std::string object,
                                          Deadline deadline) {
  std::string what = doing("create", in, name);
  std::string path = path_of(in);
  return write(std::move(what), "POST", std::move(path), std::move(in), std::move(name),
               std::move(object), deadline);
}

awaitable<Client::Written> Client::update(Collection in, std::string name, std::string object,
                                          Deadline deadline) {
  std::string what = doing("update", in, name);
  std::string path = path_of(in, name);
  return write(std::move(what), "PUT", std::move(path), std::move(in), std::move(name),
               std::move(object), deadline);
}

awaitable<Client::WatchEnd> Client::watch_once(
    Collection of, Selection selection, std::string& resource_version, Deadline deadline,
    std::function<bool(const WatchEvent& event)> on_event) {
  const std::string what = doing("watch", of);
  const Deadline limit = deadline.sooner(Deadline::after(kMaxWatchTime));
  const std::string url =
      config_.server +
      watch_path(of, selection, resource_version, std::chrono::ceil<seconds>(*limit.remaining()));
  std::optional<WatchEnd> end;
  std::string error_text;
  std::string refusal;
  net::LineBuffer lines(static_cast<std::size_t>(kMaxObjectBytes));
  http::FetchOptions options = options_for();
  options.response_limit = kMaxWatched;
  options.on_data = [&](std::string_view piece) {
    refusal += piece.substr(0, kMaxRefusal - std::min(kMaxRefusal, refusal.size()));
    lines.append(piece);
    while (const std::optional<std::string> line = lines.take_line()) {
      const WatchEvent event = decode_watch_event(*line, of.resource, what);
      if (event.kind == WatchEvent::Kind::kExpired) end = WatchEnd::kExpired;
      if (event.kind == WatchEvent::Kind::kFailed) error_text = event.reason;
      if (end || event.kind == WatchEvent::Kind::kFailed) return false;
      const std::string& version = event.object.resource_version;
      if (!version.empty()) resource_version = version;
      if (!on_event(event)) {
        end = WatchEnd::kStopped;
        return false;
      }
    }
    return true;
  };
  std::optional<http::Response> answer;
  try {
    answer = co_await http::async_fetch("GET", url, limit, std::move(options));
  } catch (const Error& error) {
    if (error.status() != ExitStatus::kTryAgain || !limit.expired()) throw;
  }
  if (end) co_return *end;
  if (!answer) co_return WatchEnd::kEnded;
  if (answer->status == 410) co_return WatchEnd::kExpired;
  answer->body = refusal;
  if (answer->status != 200) throw Refused(what, *answer);
  if (!error_text.empty()) throw Error(ExitStatus::kUnavailable, what + ": " + error_text);
  co_return WatchEnd::kEnded;
}

}  // namespace fo::kube
