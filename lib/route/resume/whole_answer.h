// The whole answer to a chat or a completion, from the events of its stream: what the engine would
// have answered in one piece. So a request that is not streamed can go to a worker as a stream, and
// continue on another one. Only for answers with one choice and without tool calls. Pure.
//
// An event adds to what came before: a text continues the text of the same name, a list its list;
// of other values the last one counts, and a null changes nothing. So this needs no list of the
// members that engines send.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "http/sse.h"
#include "json/scanner.h"

namespace fo::route {

class WholeAnswer {
 public:
  /// Bytes of the stream, with the usage, in any pieces; "[DONE]" is ignored. None of the events is
  /// an error. The caller limits size(). Throws json::Misfit for an event that is not one of
  /// a chat or a completion.
  void feed(std::string_view bytes);

  /// The memory for the answer so far, about as much as its object needs.
  [[nodiscard]] base::ByteCount size() const { return answer_.size() + choice_.size(); }

  /// The object of the answer, once the stream has ended.
  [[nodiscard]] std::string json();

 private:
  struct Member;
  struct Value {
    enum class Kind { kNull, kOther, kText, kList, kObject };
    Kind kind = Kind::kNull;
    /// WTF-8 of kText; JSON of kOther, and of the items of kList.
    std::string text = {};
    /// Members of kObject, in the order of their first appearance.
    std::vector<Member> members = {};

    void become(Kind other);
    Value& member(std::string_view name);
    /// The next value of the scanner, which has this name.
    void add(fo::json::Scanner& scanner, std::string_view name);
    void write(std::string& json) const;
    [[nodiscard]] base::ByteCount size() const;
  };
  struct Member {
    std::string name;
    Value value;
  };

  void add_event(std::string_view data);

  http::SseReader events_{std::numeric_limits<base::ByteCount>::max()};
  Value answer_;
  Value choice_;
};

}  // namespace fo::route
