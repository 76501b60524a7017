#include "http/client.h"

#include <array>
#include <memory>
#include <utility>

#include "base/error.h"
#include "loop/run.h"
#include "net/address.h"

namespace fo::http {
namespace {

using base::Deadline;
using base::Error;
using base::ExitStatus;
using boost::asio::awaitable;

constexpr std::size_t kPieceBytes = std::size_t{16} * 1024;

Origin origin_of(const net::Url& url, const FetchOptions& options, const std::string& what) {
  try {
    Origin origin = make_origin(url, options.tls);
    origin.name_servers = options.name_servers;
    return origin;
  } catch (const Error& error) {
    throw Error(error.status(), what + ": " + error.what());
  }
}

RequestHead request_head(std::string method, std::string target, const FetchOptions& options) {
  RequestHead head{std::move(method), std::move(target), options.headers, true};
  if (!options.body.empty() && !find_field(head.headers, "Content-Type")) {
    head.headers.emplace_back("Content-Type", "application/json");
  }
  return head;
}

awaitable<Response> fetch_from(Origin origin, std::string method, std::string target,
                               Deadline deadline, FetchOptions options, std::string what) {
  const std::unique_ptr<Connection> connection =
      co_await Connection::open(std::move(origin), deadline, what);
  RequestHead request = request_head(std::move(method), std::move(target), options);
  co_await connection->send(std::move(request), options.body, deadline);
  ResponseHead head = co_await connection->read_head(deadline);

  Response response;
  response.status = head.status;
  response.headers = std::move(head.headers);
  response.content_type = response.header("Content-Type").value_or("");
  base::ByteCount left = options.response_limit;
  std::array<char, kPieceBytes> piece;
  for (;;) {
    const std::size_t count = co_await connection->read_some(piece, deadline);
    if (count == 0) break;
    if (count > left) {
      throw Error(ExitStatus::kProtocol, what + ": the answer is longer than " +
                                             base::format_size(options.response_limit));
    }
    left -= count;
    const std::string_view got(piece.data(), count);
    if (!options.on_data) {
      response.body += got;
    } else if (!options.on_data(got)) {
      break;
    }
  }
  co_return response;
}

}  // namespace

Response fetch(std::string_view method, std::string_view url, const Deadline& deadline,
               const FetchOptions& options) {
  return loop::run_to_end(async_fetch(std::string(method), std::string(url), deadline, options));
}

awaitable<Response> async_fetch(std::string method, std::string url, Deadline deadline,
                                FetchOptions options) {
  const std::string what = "fetch " + base::quoted(url);
  const net::Url parsed = net::parse_url(url);
  Origin origin = origin_of(parsed, options, what);
  co_return co_await fetch_from(std::move(origin), std::move(method), parsed.target, deadline,
                                std::move(options), what);
}

awaitable<Response> async_fetch(std::string method, Origin origin, std::string target,
                                Deadline deadline, FetchOptions options) {
  std::string what = "fetch " + base::quoted(target) + " from " + origin.host();
  co_return co_await fetch_from(std::move(origin), std::move(method), std::move(target), deadline,
                                std::move(options), std::move(what));
}

}  // namespace fo::http
