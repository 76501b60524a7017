#include "etcd/client.h"

#include <iterator>
#include <utility>

#include "loop/backoff.h"
#include "os/file/file.h"

namespace fo::etcd {
namespace {

using base::Deadline;
using base::Duration;
using base::Error;
using base::ExitStatus;
using boost::asio::awaitable;

constexpr base::ByteCount kMaxPasswordBytes = 4096;
constexpr std::uint64_t kPage = 100;
// Maximum number of lists if the revision is compacted before the last page.
constexpr int kMaxLists = 3;

ExitStatus status_of(Refusal::Kind kind) {
  switch (kind) {
    case Refusal::Kind::kNotAuthenticated:
    case Refusal::Kind::kNotPermitted:
      return ExitStatus::kNotPermitted;
    case Refusal::Kind::kTransient:
      return ExitStatus::kUnavailable;
    case Refusal::Kind::kLeaseNotFound:
    case Refusal::Kind::kLeaseExists:
    case Refusal::Kind::kCompacted:
    case Refusal::Kind::kNoUsers:
    case Refusal::Kind::kOther:
      break;
  }
  return ExitStatus::kProtocol;
}

// Whether the refusal is an answer to the request, so that any other server would give the same
// one.
bool is_answer(Refusal::Kind kind) {
  return kind == Refusal::Kind::kLeaseNotFound || kind == Refusal::Kind::kLeaseExists ||
         kind == Refusal::Kind::kCompacted;
}

// Returns the result of `call`; nullopt if etcd refuses it with kind `expected`.
template <typename T>
awaitable<std::optional<T>> unless(Refusal::Kind expected, awaitable<T> call) {
  try {
    co_return co_await std::move(call);
  } catch (const Refused& refused) {
    if (refused.kind() != expected) throw;
  }
  co_return std::nullopt;
}

}  // namespace

Refused::Refused(const std::string& server, const Refusal& refusal)
    : Error(status_of(refusal.kind),
            "query etcd " + base::quoted(server) + ": " + base::quoted(refusal.reason)),
      kind_(refusal.kind) {}

template <typename Decode>
awaitable<std::invoke_result_t<Decode, std::string_view>> Client::ask(Request request,
                                                                      Deadline deadline,
                                                                      Decode decode) {
  std::optional<Error> failure;
  for (std::size_t left = config_.servers.size(); left > 0; --left) {
    const auto share = deadline.remaining();
    const Deadline own =
        share ? Deadline::after(*share / static_cast<Duration::rep>(left)) : deadline;
    const std::size_t asked = current_;
    try {
      const std::string answer = co_await ask_one(request, own);
      co_return decode(answer);
    } catch (const Error& error) {
      const auto* refused = dynamic_cast<const Refused*>(&error);
      if (refused != nullptr && is_answer(refused->kind())) throw;
      if (!failure || (loop::is_transient(error) && !loop::is_transient(*failure))) failure = error;
    }
    pass_over(asked);
  }
  throw Error(*failure);
}

http::FetchOptions Client::options_for(const Request& request) const {
  http::FetchOptions options{.body = request.body, .response_limit = kMaxAnswerBytes};
  if (server().starts_with("https:")) options.tls = config_.tls;
  if (!token_.empty()) options.headers.emplace_back("Authorization", token_);
  // With this header, a member without a leader reports an error and ends its watches instead of
  // waiting.
  options.headers.emplace_back("Grpc-Metadata-hasleader", "true");
  return options;
}

awaitable<std::string> Client::ask_one(const Request& request, Deadline deadline) {
  const bool is_new = needs_token();
  if (is_new) co_await authenticate(deadline);
  try {
    co_return co_await post(request, deadline);
  } catch (const Refused& refused) {
    const bool is_old = refused.kind() == Refusal::Kind::kNotAuthenticated && !config_.user.empty();
    if (!is_old || is_new) throw;
  }
  co_await authenticate(deadline);
  co_return co_await post(request, deadline);
}

awaitable<void> Client::authenticate(Deadline deadline) {
  token_.clear();
  std::string password = os::read_file(config_.password_file, kMaxPasswordBytes);
  if (password.ends_with('\n')) password.pop_back();
  const Request request = etcd::authenticate(config_.user, password);
  try {
    const std::string answer = co_await post(request, deadline);
    token_ = decode_token(answer);
  } catch (const Refused& refused) {
    if (refused.kind() != Refusal::Kind::kNoUsers) throw;
  }
}

awaitable<std::string> Client::post(const Request& request, Deadline deadline) {
  const std::string name = server();
  const std::string url = name + request.path;
  http::FetchOptions options = options_for(request);
  http::Response response = co_await http::async_fetch("POST", url, deadline, std::move(options));
  const auto refusal = find_refusal(response.status, response.body);
  if (refusal) throw Refused(name, *refusal);
  co_return std::move(response.body);
}

awaitable<Found> Client::range(Range range, Deadline deadline) {
  Request request = etcd::range(range);
  const std::uint64_t limit = range.limit;
  const auto decode = [limit](std::string_view answer) { return decode_range(answer, limit); };
  return ask(std::move(request), deadline, decode);
}

awaitable<Found> Client::list(KeyRange keys, Deadline deadline, std::size_t max_keys) {
  for (int lists = 1;; ++lists) {
    try {
      Found all = co_await list_once(keys, deadline, max_keys);
      co_return all;
    } catch (const Refused& refused) {
      if (refused.kind() != Refusal::Kind::kCompacted || lists == kMaxLists) throw;
    }
  }
}

awaitable<Found> Client::list_once(KeyRange keys, Deadline deadline, std::size_t max_keys) {
  Found all;
  Range page;
  page.keys = std::move(keys);
  page.limit = kPage;
  for (;;) {
    Found found = co_await range(page, deadline);
    if (page.revision == 0) all.revision = page.revision = found.revision;
    const bool is_last = !found.has_more || found.keys.empty();
    std::move(found.keys.begin(), found.keys.end(), std::back_inserter(all.keys));
    if (all.keys.size() > max_keys) {
      throw Error(ExitStatus::kProtocol, "list keys of etcd " + base::quoted(server()) +
                                             ": more than " + std::to_string(max_keys));
    }
    if (is_last) co_return all;
    // The next key in order after the last one.
    page.keys.begin = all.keys.back().key + '\0';
  }
}

awaitable<Revision> Client::put(Put put, Deadline deadline) {
  Transaction one;
  one.then.emplace_back(std::move(put));
  const Outcome outcome = co_await commit(std::move(one), deadline);
  co_return outcome.revision;
}

awaitable<std::uint64_t> Client::erase(KeyRange keys, Deadline deadline) {
  Transaction one;
  one.then.emplace_back(Delete{std::move(keys)});
  const Outcome outcome = co_await commit(std::move(one), deadline);
  co_return outcome.results.empty() ? 0 : outcome.results.front().deleted;
}

awaitable<Outcome> Client::commit(Transaction transaction, Deadline deadline) {
  return ask(etcd::transaction(transaction), deadline, decode_transaction);
}

awaitable<std::optional<Duration>> Client::grant_lease(LeaseId lease, Duration ttl,
                                                       Deadline deadline) {
  const auto decode = [lease](std::string_view answer) {
    return decode_grant_lease(answer, lease);
  };
  return unless(Refusal::Kind::kLeaseExists, ask(etcd::grant_lease(lease, ttl), deadline, decode));
}

awaitable<std::optional<Duration>> Client::keep_alive(LeaseId lease, Deadline deadline) {
  const auto decode = [lease](std::string_view answer) { return decode_keep_alive(answer, lease); };
  const std::optional<std::optional<Duration>> ttl = co_await unless(
      Refusal::Kind::kLeaseNotFound, ask(etcd::keep_alive(lease), deadline, decode));
  co_return ttl.value_or(std::nullopt);
}

awaitable<std::optional<Revision>> Client::revoke_lease(LeaseId lease, Deadline deadline) {
  return unless(Refusal::Kind::kLeaseNotFound,
                ask(etcd::revoke_lease(lease), deadline, decode_revoke_lease));
}

awaitable<Client::WatchEnd> Client::watch_once(
    WatchStream& stream, Deadline deadline,
    std::function<bool(const WatchMessage& message)> on_message) {
  const bool is_new = needs_token();
  std::size_t asked = current_;
  if (is_new) {
    try {
      co_await authenticate(deadline);
    } catch (const Error&) {
      pass_over(asked);
      throw;
    }
    asked = current_;
  }
  const Request request = stream.begin();
  http::FetchOptions options = options_for(request);
  std::optional<WatchEnd> end;
  std::string error_text;
  ExitStatus status = ExitStatus::kUnavailable;
  options.on_data = [&](std::string_view piece) {
    stream.append(piece);
    while (const std::optional<WatchMessage> message = stream.next()) {
      if (message->compacted != 0) end = WatchEnd::kCompacted;
      if (!end && message->is_ended) {
        error_text = "the watch was ended: " + base::quoted(message->reason);
        // etcd also gives the first reason for a token that it has forgotten.
        const bool is_refused = message->reason.find("permission denied") != std::string::npos ||
                                message->reason.find("invalid auth token") != std::string::npos;
        if (is_refused && !is_new && !config_.user.empty()) {
          token_.clear();
        } else if (is_refused) {
          status = ExitStatus::kNotPermitted;
        }
      }
      if (end || message->is_ended) return false;
      if (!on_message(*message)) {
        end = WatchEnd::kStopped;
        return false;
      }
    }
    return true;
  };
  const std::string url = server() + request.path;
  std::optional<http::Response> response;
  try {
    response = co_await http::async_fetch("POST", url, deadline, std::move(options));
  } catch (const Error& error) {
    const bool is_time = error.status() == ExitStatus::kTryAgain && deadline.expired();
    if (!is_time) {
      pass_over(asked);
      throw;
    }
  }
  if (end) co_return *end;
  if (!response) co_return WatchEnd::kDeadline;
  if (error_text.empty()) {
    error_text = "the watch ended early, with HTTP status " + std::to_string(response->status);
  }
  const std::string& name = config_.servers[asked];
  const Error failure(status, "query etcd " + base::quoted(name) + ": " + error_text);
  pass_over(asked);
  throw Error(failure);
}

}  // namespace fo::etcd
