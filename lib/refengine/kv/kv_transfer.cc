#include "refengine/kv/kv_transfer.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/finally.h"
#include "base/units.h"
#include "http/client.h"
#include "json/object.h"
#include "net/address.h"
#include "refengine/api/request_fields.h"
#include "refengine/kv/kv_layout.h"

namespace fo::refengine {
namespace {

using base::Deadline;
using base::Error;
using boost::asio::awaitable;
using nlohmann::json;

constexpr auto kPullTime = std::chrono::seconds(30);
constexpr const char* kOfferPath = "/kv_snapshot?request_id=";
constexpr const char* kBlocksPath = "/kv_snapshot/blocks?request_id=";

std::string text_member(const json& body, const char* key) {
  const json* value = fo::json::find(body, key);
  if (value == nullptr || !value->is_string()) refuse(key, "is not a string");
  return value->get<std::string>();
}

// The maximum size of the blocks that are read between two steps of the model. The running request
// makes no progress meanwhile.
constexpr base::ByteCount kReadBytes = 4 * base::kMiB;

// The blocks from `index` on to read at once; at least one.
std::vector<KvRange> ranges_from(const KvOffer& offer, std::size_t index) {
  const base::ByteCount block = kBlockTokens * offer.identity.bytes_per_token;
  const std::size_t count = std::max<base::ByteCount>(kReadBytes / block, 1);
  const std::size_t end = std::min(index + count, offer.blocks());
  std::vector<KvRange> ranges;
  for (; index < end; ++index) {
    ranges.push_back({index * kBlockTokens, tokens_in_block(offer.tokens.size(), index)});
  }
  return ranges;
}

// Queries a source. The option `on_data`, if it is set, receives the body. Throws ApiError 502 with
// the reason if the source fails.
awaitable<http::Response> ask_source(std::string url, Deadline deadline,
                                     http::FetchOptions options) {
  try {
    http::Response response = co_await http::async_fetch("GET", url, deadline, std::move(options));
    if (response.status == 200) co_return response;
    throw ApiError(502,
                   "fetch " + base::quoted(url) + ": status " + std::to_string(response.status));
  } catch (const Error& error) {
    throw ApiError(502, error.what());
  }
}

awaitable<KvOffer> ask_offer(std::string base, std::string request_id, Deadline deadline) {
  std::string url = base + kOfferPath + request_id;
  http::FetchOptions options;
  const http::Response response = co_await ask_source(std::move(url), deadline, std::move(options));
  try {
    co_return parse_offer(response.body);
  } catch (const Error& error) {
    throw ApiError(502, error.what());
  }
}

awaitable<std::vector<std::string>> ask_blocks(std::string base, std::string request_id,
                                               const KvOffer& offer, Deadline deadline) {
  std::string url =
      base + kBlocksPath + request_id + "&tokens=" + std::to_string(offer.tokens.size());
  BlockReader reader(offer);
  http::FetchOptions options{.response_limit = stream_bytes(offer)};
  options.on_data = [&reader](std::string_view piece) {
    reader.add(piece);
    return true;
  };
  co_await ask_source(std::move(url), deadline, std::move(options));
  try {
    co_return reader.finish();
  } catch (const Error& error) {
    throw ApiError(502, error.what());
  }
}

}  // namespace

KvTransfer::Running::Running(std::shared_ptr<KvTransfer> transfer, const std::string& id,
                             const Scheduler::Turn& turn, const Generation& generation)
    : transfer_(std::move(transfer)),
      id_(id),
      turn_(turn),
      generation_(generation),
      serial_(transfer_->next_serial_++) {
  transfer_->running_.emplace(id_, this);
}

KvTransfer::Running::~Running() {
  const auto found = transfer_->running_.find(id_);
  if (found != transfer_->running_.end() && found->second == this) transfer_->running_.erase(found);
}

KvTransfer::KvTransfer(Options options, const ModelConfig& config, const std::string& model_name,
                       std::uint32_t positions, std::shared_ptr<Scheduler> scheduler)
    : options_(std::move(options)),
      identity_{model_name, {}, KvLayout::bytes_per_position(config, {0, config.layers})},
      vocab_size_(config.vocab_size),
      positions_(positions),
      scheduler_(std::move(scheduler)),
      store_(options_.max_bytes) {}

KvTransfer::Found KvTransfer::take(const std::string& id, std::span<const TokenId> prompt) {
  const auto snapshot = store_.find(id, Deadline::Clock::now());
  if (!snapshot) return {nullptr, "unknown"};
  if (snapshot->offer.identity != identity_) return {nullptr, "another model"};
  const std::vector<TokenId>& tokens = snapshot->offer.tokens;
  if (prompt.size() < tokens.size() || !std::ranges::equal(prompt.first(tokens.size()), tokens)) {
    return {nullptr, "other tokens"};
  }
  store_.remove(id);
  return {snapshot, {}};
}

const KvTransfer::Running& KvTransfer::find(const http::Request& request) const {
  const auto id = request.parameter("request_id");
  const auto found = id ? running_.find(std::string(*id)) : running_.end();
  if (found == running_.end()) throw ApiError(404, "no such request is running", "request_id");
  const Running& running = *found->second;
  if (!scheduler_->has_kv(running.turn_) || running.generation_.computed_tokens() == 0) {
    throw ApiError(409, "the request has no KV cache now", "request_id");
  }
  return running;
}

KvOffer KvTransfer::make_offer(const Running& running, std::size_t tokens) const {
  const std::span<const TokenId> all = running.generation_.tokens();
  return {identity_, {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(tokens)}};
}

std::string KvTransfer::offer(const http::Request& request) const {
  const Running& running = find(request);
  return format_offer(make_offer(running, running.generation_.computed_tokens()));
}

awaitable<void> KvTransfer::send(std::shared_ptr<KvTransfer> self, const http::Request& request,
                                 http::Reply& reply) {
  if (self->sending_ == kMaxSending) throw ApiError(503, "too many KV caches are being sent");
  ++self->sending_;
  const base::Finally uncount([&] { --self->sending_; });
  const Running& running = self->find(request);
  const auto tokens = base::parse_uint(request.parameter("tokens").value_or(""));
  if (!tokens || *tokens == 0 || *tokens > running.generation_.computed_tokens()) {
    refuse("tokens", "is not the number of tokens of an offer");
  }
  const KvOffer offer = self->make_offer(running, *tokens);
  // The request may end, and another one may get its id.
  const std::string id = running.id_;
  const std::uint64_t serial = running.serial_;
  const auto find_turn = [&self, &id, serial, &offer]() -> const Scheduler::Turn* {
    const auto found = self->running_.find(id);
    if (found == self->running_.end() || found->second->serial_ != serial) return nullptr;
    // After a sleep there are fewer, until they are computed again.
    const bool has_all = found->second->generation_.computed_tokens() >= offer.tokens.size();
    return has_all ? &found->second->turn_ : nullptr;
  };
  co_await reply.begin(200, "application/octet-stream");
  BlockWriter writer(offer);
  for (std::size_t index = 0; index < offer.blocks();) {
    std::vector<KvRange> ranges = ranges_from(offer, index);
    index += ranges.size();
    const auto blocks = co_await self->scheduler_->read_kv(find_turn, std::move(ranges));
    if (!blocks) co_return;
    std::string bytes;
    for (const std::string& block : *blocks) bytes += writer.write(block);
    co_await reply.write(bytes);
  }
}

// Returns the beginning of the source's URLs. Throws ApiError for a URL that is not allowed.
std::string KvTransfer::check_source(const std::string& url) const {
  net::Url parsed;
  try {
    parsed = net::parse_url(url);
  } catch (const Error& error) {
    throw ApiError(400, error.what(), "source");
  }
  if (!parsed.socket_path.empty() || parsed.is_tls || parsed.target != "/") {
    refuse("source", "is not http://ADDRESS:PORT");
  }
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address(parsed.address.host, error);
  if (error || !options_.sources.contains(address)) {
    throw ApiError(403, "source is not an address of the allowed networks", "source");
  }
  return "http://" + net::to_string(parsed.address);
}

void KvTransfer::check_offer(const KvOffer& offer) const {
  if (offer.identity != identity_) {
    throw ApiError(409, "the source has another model or another KV cache");
  }
  if (!std::ranges::all_of(offer.tokens, [&](TokenId token) { return token < vocab_size_; })) {
    throw ApiError(502, "the source offers a token outside the vocabulary");
  }
  if (offer.tokens.size() >= positions_) {
    throw ApiError(503, "no room: the KV cache has " + std::to_string(positions_) + " positions");
  }
}

awaitable<void> KvTransfer::pull(std::shared_ptr<KvTransfer> self, const http::Request& request,
                                 http::Reply& reply) {
  const json body = parse_body(request.body);
  const std::string base = self->check_source(text_member(body, "source"));
  const std::string id = http::encode_parameter(text_member(body, "request_id"));
  const Deadline deadline = Deadline::after(kPullTime);
  reply.cancel_when_client_goes();
  auto snapshot = std::make_shared<KvSnapshot>();
  snapshot->offer = co_await ask_offer(base, id, deadline);
  self->check_offer(snapshot->offer);
  snapshot->room = self->store_.reserve(snapshot->offer.bytes(), Deadline::Clock::now());
  if (!snapshot->room) {
    throw ApiError(503, "no room: the KV cache of " +
                            std::to_string(snapshot->offer.tokens.size()) + " tokens takes " +
                            base::format_size(snapshot->offer.bytes()));
  }
  snapshot->blocks = co_await ask_blocks(base, id, snapshot->offer, deadline);
  const json answer{{"tokens", snapshot->offer.tokens.size()},
                    {"blocks", snapshot->offer.blocks()},
                    {"bytes", snapshot->offer.bytes()},
                    {"snapshot", self->store_.keep(snapshot, Deadline::Clock::now())}};
  reply.answer({200, "application/json", fo::json::dump(answer), http::Fields{}});
}

}  // namespace fo::refengine
