#include "route/resume/text/seam.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "http/client.h"
#include "json/object.h"

namespace fo::route {
namespace {

using boost::asio::awaitable;

// A failed query, classified as an attempt.
struct QueryFailure {
  Attempt attempt;
  std::string reason;
};

// `deadline` is that of the request.
Attempt attempt_of(const base::Error& failure, const base::Deadline& deadline) {
  if (base::is_exhausted(failure.code())) return {.end = AttemptEnd::kExhausted};
  if (deadline.expired()) return {.end = AttemptEnd::kDeadline};
  if (failure.status() == base::ExitStatus::kTryAgain) {
    return {.end = AttemptEnd::kNoFirstToken, .others_moved = true};
  }
  const bool is_refused = failure.status() == base::ExitStatus::kUnavailable;
  return {.end = is_refused ? AttemptEnd::kRefused : AttemptEnd::kBroken};
}

class Query {
 public:
  Query(WorkerPtr worker, http::Fields headers, base::Deadline deadline, base::Duration timeout)
      : worker_(std::move(worker)),
        headers_(std::move(headers)),
        deadline_(deadline),
        limit_(deadline.sooner(base::Deadline::after(timeout))) {}

  /// The text of the ids, from POST /detokenize: vLLM names it "prompt", SGLang "text". Throws
  /// QueryFailure.
  awaitable<std::string> text_of(std::vector<TokenId> ids) {
    if (ids.empty()) co_return std::string();
    nlohmann::json body{
        {"model", worker_->model}, {"tokens", std::move(ids)}, {"skip_special_tokens", false}};
    const http::FetchOptions options{.body = body.dump(), .headers = headers_};
    http::Response response;
    try {
      response = co_await http::async_fetch("POST", worker_->origin,
                                            worker_->base_path + "/detokenize", limit_, options);
    } catch (const base::Error& error) {
      throw QueryFailure{attempt_of(error, deadline_), error.what()};
    }
    if (response.status != 200) {
      // A worker that answers 401, 403 or 404 lacks or guards the path, and may serve the model.
      throw QueryFailure{{.end = AttemptEnd::kStatus,
                          .status = response.status,
                          .may_lack_object = true,
                          .gets_client_key = true},
                         "/detokenize: status " + std::to_string(response.status)};
    }
    const auto object = fo::json::find_object(response.body, response.body.size());
    for (const char* name : {"prompt", "text"}) {
      const nlohmann::json* text = object ? fo::json::find(*object, name) : nullptr;
      if (text != nullptr && text->is_string()) co_return text->get<std::string>();
    }
    throw QueryFailure{{.end = AttemptEnd::kBroken}, "/detokenize: an answer without a text"};
  }

 private:
  WorkerPtr worker_;
  http::Fields headers_;
  base::Deadline deadline_;
  base::Deadline limit_;
};

// Adds the ids of tokens that have a text by themselves, and brought none in the answer.
awaitable<void> add_hidden(Query& query, const Transcript& transcript, std::set<TokenId>& hidden) {
  for (const TokenId id : transcript.silent()) {
    std::vector<TokenId> ids{id};
    const std::string text = co_await query.text_of(std::move(ids));
    const bool is_part = text.find(base::kReplacement) != text.npos;
    if (!text.empty() && !is_part) hidden.insert(id);
  }
}

// Compares the text without the hidden tokens. `resumption` is rewound to the last place up to
// which the text is the same, if there is one.
awaitable<SeamCheck> compare(Query& query, Resumption& resumption,
                             const std::set<TokenId>& hidden) {
  const Transcript& transcript = resumption.transcript();
  const std::size_t safe = transcript.safe_point();
  std::vector<TokenId> ids;
  std::string context;
  if (safe > 0) {
    ids = transcript.seam_ids(transcript.seam_begin(), hidden);
    context = co_await query.text_of(std::move(ids));
  }
  SeamCheck check;
  if (transcript.begins_in_character(context)) {
    check.reason = "the first tokens of its text end within a character";
    co_return check;
  }
  if (safe == transcript.seam_begin()) {
    // Text after it comes again if an earlier rewind() ended here.
    resumption.rewind(safe, transcript.match_seam(context, context).value());
    co_return check;
  }
  const std::size_t max_rewind = resumption.max_rewind();
  for (std::size_t back = 0; back <= max_rewind; ++back) {
    ids = transcript.seam_ids(safe - back, hidden);
    const std::string compared = co_await query.text_of(std::move(ids));
    const std::optional<std::size_t> repeated = transcript.match_seam(context, compared);
    const bool is_seam = repeated && (*repeated == 0 || max_rewind > 0);
    if (!is_seam) continue;
    resumption.rewind(safe - back, *repeated);
    co_return check;
  }
  check.reason = "the worker has another text for its tokens";
  co_return check;
}

awaitable<SeamCheck> find_seam(Query& query, Resumption& resumption) {
  std::set<TokenId> hidden = resumption.hidden_ids();
  const std::size_t known = hidden.size();
  SeamCheck check = co_await compare(query, resumption, hidden);
  if (check.reason.empty() || resumption.knows_hidden_ids()) co_return check;
  co_await add_hidden(query, resumption.transcript(), hidden);
  if (hidden.size() > known) check = co_await compare(query, resumption, hidden);
  co_return check;
}

}  // namespace

awaitable<SeamCheck> check_seam(WorkerPtr worker, http::Fields headers, Resumption& resumption,
                                base::Deadline deadline, base::Duration timeout) {
  Query query(std::move(worker), std::move(headers), deadline, timeout);
  try {
    co_return co_await find_seam(query, resumption);
  } catch (const QueryFailure& failure) {
    co_return SeamCheck{.reason = failure.reason, .failure = failure.attempt};
  }
}

}  // namespace fo::route
