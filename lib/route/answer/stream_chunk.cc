#include "route/answer/stream_chunk.h"

#include <array>
#include <charconv>
#include <cstddef>

#include "json/reader.h"
#include "text/ascii.h"

namespace fo::route {
namespace {

constexpr std::array<std::string_view, 5> kContents{"content", "reasoning_content", "reasoning",
                                                    "refusal", "text"};

// The text with U+FFFD in place of each lone surrogate, which the JSON library refuses. An engine
// that escapes characters beyond U+FFFF may send the halves of a pair in two events.
std::string without_lone_surrogates(std::string_view data) {
  std::string text(data);
  const auto is_escape_between = [&](std::size_t at, unsigned first, unsigned last) {
    if (text.size() < at + 6 || text[at] != '\\' || text[at + 1] != 'u') return false;
    unsigned unit = 0;
    const char* const end = text.data() + at + 6;
    const auto result = std::from_chars(text.data() + at + 2, end, unit, 16);
    return result.ptr == end && unit >= first && unit <= last;
  };
  for (std::size_t at = text.find('\\'); at < text.size(); at = text.find('\\', at)) {
    const bool is_pair =
        is_escape_between(at, 0xd800, 0xdbff) && is_escape_between(at + 6, 0xdc00, 0xdfff);
    if (!is_pair && is_escape_between(at, 0xd800, 0xdfff)) text.replace(at + 2, 4, "fffd");
    at += is_pair ? 12 : 2;
  }
  return text;
}

class ChunkReader final : public fo::json::JsonReader {
 public:
  explicit ChunkReader(const std::string& source) : JsonReader(source, "an event is ") {}

  StreamChunk take() {
    if (!is_object_) fo::json::refuse_file(file(), "an event is not a JSON object");
    if (chunk_.tokens == 0 && chunk_.has_content) chunk_.tokens = 1;
    return std::move(chunk_);
  }

 private:
  // What the container at a depth is.
  enum class Place { kTop, kError, kChoices, kChoice, kDelta, kTokenIds, kCalls };

  bool enter(Place place) {
    if (depth() >= places_.size()) return false;
    places_[depth()] = place;
    return true;
  }

  bool on_value(fo::json::JsonValue value) override {
    if (depth() == 0) {
      is_object_ = value.kind == Kind::kObject;
      return is_object_ && enter(Place::kTop);
    }
    switch (places_[depth() - 1]) {
      case Place::kTop:
        return on_member(value);
      case Place::kError:
        on_error(value);
        return false;
      case Place::kChoices:
        choice_ = 0;
        return value.kind == Kind::kObject && enter(Place::kChoice);
      case Place::kChoice:
        return on_choice(value);
      case Place::kDelta:
        return on_delta(value);
      case Place::kTokenIds:
        ++chunk_.tokens;
        return false;
      case Place::kCalls:
        chunk_.has_content = true;
        return false;
    }
    return false;
  }

  bool on_member(const fo::json::JsonValue& value) {
    const std::string& key = last_key();
    if (key == "choices") return value.kind == Kind::kList && enter(Place::kChoices);
    if (key == "error" && value.kind == Kind::kObject) {
      chunk_.is_error = true;
      return enter(Place::kError);
    }
    if (key == "error" && value.kind == Kind::kText) {
      chunk_.is_error = true;
      chunk_.error_message = value.text;
    }
    // Older versions of vLLM: {"object": "error", "message": …, "code": 400}.
    if (key == "object" && value.text == "error") chunk_.is_error = true;
    on_error(value);
    return false;
  }

  void on_error(const fo::json::JsonValue& value) {
    const std::string& key = last_key();
    if (key == "message" && value.kind == Kind::kText) chunk_.error_message = value.text;
    if (key != "code" && key != "status_code") return;
    std::uint64_t number = value.number;
    if (value.kind == Kind::kText) {
      std::from_chars(value.text.data(), value.text.data() + value.text.size(), number);
    }
    if (number >= 100 && number <= 599) chunk_.error_status = static_cast<int>(number);
  }

  bool on_choice(const fo::json::JsonValue& value) {
    const std::string& key = last_key();
    if (key == "delta") return value.kind == Kind::kObject && enter(Place::kDelta);
    if (key == "token_ids") return value.kind == Kind::kList && enter(Place::kTokenIds);
    if (key == "index" && value.kind == Kind::kNumber) choice_ = value.number;
    if (key == "finish_reason" && value.kind == Kind::kText) finish_ = value.text;
    return on_delta(value);
  }

  bool on_delta(const fo::json::JsonValue& value) {
    const std::string& key = last_key();
    const bool is_text = value.kind == Kind::kText && !value.text.empty();
    if (is_text && text::is_one_of(key, kContents)) chunk_.has_content = true;
    if (key == "function_call" && value.kind == Kind::kObject) chunk_.has_content = true;
    return key == "tool_calls" && value.kind == Kind::kList && enter(Place::kCalls);
  }

  void on_end() override {
    if (depth() == 0 || places_[depth()] != Place::kChoice || finish_.empty()) return;
    chunk_.finishes.push_back({choice_, std::move(finish_)});
    finish_.clear();
  }

  StreamChunk chunk_;
  bool is_object_ = false;
  std::array<Place, 6> places_{};
  std::uint64_t choice_ = 0;
  std::string finish_;
};

}  // namespace

StreamChunk read_stream_chunk(std::string_view data) {
  static const std::string source = "a stream";
  ChunkReader reader(source);
  const bool has_surrogates = data.find("\\ud") != data.npos || data.find("\\uD") != data.npos;
  reader.read(has_surrogates ? without_lone_surrogates(data) : data);
  return reader.take();
}

}  // namespace fo::route
