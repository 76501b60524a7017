#include "route/answer/stream_chunk.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <limits>
#include <utility>

#include "base/error.h"
#include "json/object.h"
#include "text/ascii.h"

namespace fo::route {
namespace {

using fo::json::Scanner;
using Kind = Scanner::Kind;

constexpr std::array<std::string_view, 3> kOtherContents{"reasoning_content", "reasoning",
                                                         "refusal"};

class ChunkReader {
 public:
  explicit ChunkReader(std::string_view data) : scanner_(data) {}

  StreamChunk read() {
    if (scanner_.kind() != Kind::kObject) throw fo::json::Misfit("not a JSON object");
    fo::json::MemberCuts ids;
    fo::json::MemberCuts usage;
    scanner_.object([&](std::string_view name) {
      const std::size_t begin = scanner_.member_begin();
      const bool is_ids = name == "prompt_token_ids";
      const bool is_usage = name == "usage";
      read_member(name);
      ids.add(begin, scanner_.position(), is_ids);
      usage.add(begin, scanner_.position(), is_usage);
    });
    scanner_.end();
    ids.finish(chunk_.id_cuts);
    usage.finish(chunk_.usage_cuts);
    fo::json::sort(chunk_.id_cuts);
    if (chunk_.tokens == 0 && chunk_.has_content) chunk_.tokens = 1;
    return std::move(chunk_);
  }

 private:
  void read_member(std::string_view name) {
    const Kind kind = scanner_.kind();
    if (name == "choices" && kind == Kind::kList) {
      chunk_.choices_at.begin = scanner_.position();
      scanner_.list([this] { read_choice(); });
      chunk_.choices_at.end = scanner_.position();
    } else if (name == "error" && kind == Kind::kObject) {
      chunk_.is_error = true;
      scanner_.object([this](std::string_view member) { read_error(member); });
    } else if (name == "error" && kind == Kind::kText) {
      chunk_.is_error = true;
      chunk_.error_message = fo::json::without_halves(scanner_.text());
    } else if (name == "object" && kind == Kind::kText) {
      // Older versions of vLLM: {"object": "error", "message": …, "code": 400}.
      if (scanner_.text() == "error") chunk_.is_error = true;
    } else if (name == "prompt_token_ids") {
      chunk_.prompt_ids = read_ids();
    } else if (name == "usage" && kind == Kind::kObject) {
      read_usage(scanner_, chunk_.usage.emplace());
    } else {
      read_error(name);
    }
  }

  void read_error(std::string_view name) {
    const Kind kind = scanner_.kind();
    const bool is_code = name == "code" || name == "status_code";
    std::uint64_t number = 0;
    if (name == "message" && kind == Kind::kText) {
      chunk_.error_message = fo::json::without_halves(scanner_.text());
    } else if (is_code && kind == Kind::kText) {
      const std::string text = scanner_.text();
      std::from_chars(text.data(), text.data() + text.size(), number);
    } else if (is_code && kind == Kind::kNumber) {
      number = scanner_.number().value_or(0);
    } else {
      scanner_.skip();
    }
    if (number >= 100 && number <= 599) chunk_.error_status = static_cast<int>(number);
  }

  void read_choice() {
    if (scanner_.kind() != Kind::kObject) {
      scanner_.skip();
      return;
    }
    ++chunk_.choices;
    StreamChunk::Finish finish;
    fo::json::MemberCuts ids;
    scanner_.object([&](std::string_view name) {
      const std::size_t begin = scanner_.member_begin();
      const bool is_ids = name == "token_ids" || name == "prompt_token_ids";
      read_choice_member(name, finish);
      ids.add(begin, scanner_.position(), is_ids);
    });
    ids.finish(chunk_.id_cuts);
    if (!finish.reason.empty()) chunk_.finishes.push_back(std::move(finish));
  }

  void read_choice_member(std::string_view name, StreamChunk::Finish& finish) {
    const Kind kind = scanner_.kind();
    if (name == "delta" && kind == Kind::kObject) {
      scanner_.object([this](std::string_view member) { read_delta(member); });
    } else if (name == "token_ids") {
      chunk_.token_ids = read_ids();
      chunk_.tokens += items_;
    } else if (name == "prompt_token_ids") {
      chunk_.prompt_ids = read_ids();
    } else if (name == "index" && kind == Kind::kNumber) {
      finish.choice = scanner_.number().value_or(0);
    } else if (name == "finish_reason" && kind == Kind::kText) {
      finish.reason = scanner_.text();
    } else if (name == "logprobs") {
      chunk_.logprobs_at = pass();
    } else if (name == "stop_reason") {
      chunk_.stop_reason_at = pass();
    } else {
      read_delta(name);
    }
  }

  void read_delta(std::string_view name) {
    const Kind kind = scanner_.kind();
    const bool is_text = name == "content" || name == "text";
    const bool is_other = text::is_one_of(name, kOtherContents);
    bool has_other = false;
    if (is_text && kind == Kind::kText) {
      const std::size_t begin = scanner_.position();
      chunk_.text = scanner_.text();
      chunk_.text_at = {begin, scanner_.position()};
      chunk_.has_content |= !chunk_.text.empty();
    } else if (is_other && kind == Kind::kText) {
      has_other = !scanner_.text().empty();
    } else if (name == "tool_calls" && kind == Kind::kList) {
      scanner_.list([&] {
        scanner_.skip();
        has_other = true;
      });
    } else {
      has_other = name == "function_call" && kind == Kind::kObject;
      scanner_.skip();
    }
    chunk_.has_content |= has_other;
    chunk_.has_other_content |= has_other;
  }

  // Skips the next value, and returns its place.
  StreamChunk::Place pass() {
    const std::size_t begin = scanner_.position();
    scanner_.skip();
    return {begin, scanner_.position()};
  }

  // Reads the next value; nullopt unless it is a list of ids. `items_` becomes the length of a
  // list, also if its items are not ids.
  std::optional<std::vector<TokenId>> read_ids() {
    items_ = 0;
    if (scanner_.kind() != Kind::kList) {
      scanner_.skip();
      return std::nullopt;
    }
    std::optional<std::vector<TokenId>> ids(std::in_place);
    // A prompt may have a million ids.
    if (scanner_.short_numbers(*ids)) {
      items_ = ids->size();
      return ids;
    }
    ids->clear();
    scanner_.list([&] {
      ++items_;
      std::optional<std::uint64_t> id;
      if (scanner_.kind() == Kind::kNumber) {
        id = scanner_.number();
      } else {
        scanner_.skip();
      }
      const bool is_id = id && *id <= std::numeric_limits<TokenId>::max();
      if (!is_id) ids.reset();
      if (ids) ids->push_back(static_cast<TokenId>(*id));
    });
    return ids;
  }

  Scanner scanner_;
  StreamChunk chunk_;
  std::uint64_t items_ = 0;
};

}  // namespace

void read_usage(Scanner& scanner, Usage& usage) {
  constexpr std::uint64_t kMaxTokens = std::uint64_t{1} << 32;
  scanner.object([&](std::string_view name) {
    const bool is_prompt = name == "prompt_tokens" || name == "input_tokens";
    const bool is_answer = name == "completion_tokens" || name == "output_tokens";
    if (scanner.kind() != Kind::kNumber || !(is_prompt || is_answer)) {
      scanner.skip();
      return;
    }
    std::uint64_t& tokens = is_prompt ? usage.prompt_tokens : usage.completion_tokens;
    tokens = std::min(scanner.number().value_or(0), kMaxTokens);
  });
}

StreamChunk read_stream_chunk(std::string_view data) {
  try {
    return ChunkReader(data).read();
  } catch (const fo::json::Misfit& misfit) {
    throw base::Error(base::ExitStatus::kBadData,
                      std::string("an event of the stream: ") + misfit.what());
  }
}

}  // namespace fo::route
