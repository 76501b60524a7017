#include "route/resume/client_events.h"

#include "http/sse.h"
#include "json/scanner.h"
#include "route/resume/id_list.h"

namespace fo::route {
namespace {

using fo::json::Edit;

std::string object_of(const Usage& usage) {
  return "{\"prompt_tokens\":" + std::to_string(usage.prompt_tokens) +
         ",\"completion_tokens\":" + std::to_string(usage.completion_tokens) +
         ",\"total_tokens\":" + std::to_string(usage.prompt_tokens + usage.completion_tokens) + "}";
}

}  // namespace

void ClientEvents::learn(std::string_view data, const StreamChunk& chunk) {
  std::vector<Edit> cuts = chunk.id_cuts;
  cuts.insert(cuts.end(), chunk.usage_cuts.begin(), chunk.usage_cuts.end());
  fo::json::sort(cuts);
  before_ = fo::json::edited(data, cuts, 0, chunk.choices_at.begin);
  after_ = fo::json::edited(data, cuts, chunk.choices_at.end, data.size());
}

std::string ClientEvents::forwarded(std::string_view data, const StreamChunk& chunk,
                                    const std::optional<std::string>& text) const {
  std::vector<Edit> edits;
  if (!facts_.wants_ids) edits = chunk.id_cuts;
  const bool is_unwanted =
      !facts_.wants_usage || (chunk.usage && chunk.choices > 0 && !facts_.wants_continuous_usage);
  if (is_unwanted) {
    edits.insert(edits.end(), chunk.usage_cuts.begin(), chunk.usage_cuts.end());
  }
  if (text && !chunk.text_at.empty()) {
    edits.push_back({chunk.text_at.begin, chunk.text_at.end, fo::json::quoted(*text)});
  }
  if (edits.empty()) return http::format_sse(data);
  fo::json::sort(edits);
  return http::format_sse(fo::json::edited(data, edits));
}

std::string ClientEvents::event(std::string_view choices, const std::string& usage) const {
  std::string data = before_;
  data += choices;
  if (!usage.empty()) data += ",\"usage\":" + usage;
  data += after_;
  return http::format_sse(data);
}

std::string ClientEvents::made(const Part& part, const std::optional<Usage>& usage) const {
  std::string choice = "[{\"index\":0,";
  if (api_ == Api::kChat) {
    choice += "\"delta\":{";
    if (!part.text.empty()) choice += "\"content\":" + fo::json::quoted(part.text);
    choice += "}";
  } else {
    choice += "\"text\":" + fo::json::quoted(part.text);
  }
  choice += ",\"logprobs\":" + part.logprobs + ",\"finish_reason\":" + part.finish +
            ",\"stop_reason\":" + part.stop_reason;
  if (facts_.wants_ids) choice += ",\"token_ids\":" + list_of_ids(part.ids);
  choice += "}]";
  return event(choice, facts_.wants_continuous_usage && usage ? object_of(*usage) : std::string());
}

std::string ClientEvents::made_usage(const Usage& usage) const {
  return event("[]", object_of(usage));
}

}  // namespace fo::route
