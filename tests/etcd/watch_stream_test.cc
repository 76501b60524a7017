#include "etcd/watch_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/failure.h"
#include "text/base64.h"

namespace fo::etcd {
namespace {

using base::ExitStatus;
using nlohmann::json;
using testing::ElementsAre;
using testing::IsEmpty;

/// A message line with these events, given as key and revision.
std::string message_line(const std::vector<std::pair<std::string, Revision>>& events,
                         const json& more = json::object()) {
  json result{{"header", {{"revision", "1000"}}}};
  for (const auto& [key, revision] : events) {
    result["events"].push_back({{"kv",
                                 {{"key", text::encode_base64(key)},
                                  {"create_revision", "1"},
                                  {"mod_revision", std::to_string(revision)}}}});
  }
  result.update(more);
  return json{{"result", result}}.dump() + "\n";
}
std::string note(Revision revision, bool is_created = false) {
  json result{{"header", {{"revision", std::to_string(revision)}}}};
  if (is_created) result["created"] = true;
  return json{{"result", result}}.dump() + "\n";
}
const json kFragment{{"fragment", true}};

Revision asked_from(WatchStream& stream) {
  const json body = json::parse(stream.begin().body);
  return std::stoull(body["create_request"].value("start_revision", "0"));
}

/// The keys of the events in these bytes.
std::vector<std::string> feed(WatchStream& stream, const std::string& bytes) {
  stream.append(bytes);
  std::vector<std::string> keys;
  while (const auto message = stream.next()) {
    for (const Event& event : message->events) keys.push_back(event.key.key);
  }
  return keys;
}

TEST(EtcdWatchStream, TellsWhateverThePieces) {
  const std::string all =
      note(9, true) + message_line({{"a", 10}, {"b", 11}}) + message_line({{"c", 12}});
  for (std::size_t size = 1; size <= all.size(); ++size) {
    WatchStream stream(Watch{keys_with_prefix("x"), 10});
    EXPECT_EQ(asked_from(stream), 10U);
    std::vector<std::string> keys;
    for (std::size_t at = 0; at < all.size(); at += size) {
      for (std::string& key : feed(stream, all.substr(at, size))) keys.push_back(std::move(key));
    }
    EXPECT_THAT(keys, ElementsAre("a", "b", "c"));
    EXPECT_EQ(stream.next_revision(), 13U);
  }
}

TEST(EtcdWatchStream, GoesOnBehindTheLastEventAndNotWhereTheStoreIs) {
  WatchStream stream(Watch{{"x"}, 10});
  asked_from(stream);
  feed(stream, note(2000, true));
  EXPECT_EQ(asked_from(stream), 10U);
  // etcd sends many past events in several messages, which all have the current revision.
  feed(stream, message_line({{"a", 10}, {"b", 15}}));
  EXPECT_EQ(asked_from(stream), 16U);
  // An incomplete line is discarded with its connection.
  feed(stream, message_line({{"c", 16}}).substr(0, 20));
  EXPECT_EQ(asked_from(stream), 16U);
  EXPECT_THAT(feed(stream, message_line({{"c", 16}})), ElementsAre("c"));
}

TEST(EtcdWatchStream, NoteOfProgressSavesFromCompaction) {
  WatchStream stream(Watch{{"x"}, 10});
  asked_from(stream);
  feed(stream, note(30));
  EXPECT_EQ(asked_from(stream), 31U);
  feed(stream, note(20));
  EXPECT_EQ(asked_from(stream), 31U);
}

TEST(EtcdWatchStream, WithoutARevisionItBeginsWhereEtcdSays) {
  WatchStream stream(Watch{{"x"}});
  EXPECT_EQ(asked_from(stream), 0U);
  EXPECT_EQ(asked_from(stream), 0U);
  feed(stream, note(41, true));
  EXPECT_EQ(asked_from(stream), 42U);
}

TEST(EtcdWatchStream, RevisionThatIsHalfToldIsNeitherRepeatedNorLeftOut) {
  WatchStream stream(Watch{{"x"}, 10});
  asked_from(stream);
  EXPECT_THAT(feed(stream, message_line({{"a", 10}, {"b", 11}, {"c", 11}}, kFragment)),
              ElementsAre("a", "b", "c"));
  EXPECT_EQ(asked_from(stream), 11U);
  // The connection fails in the middle again.
  EXPECT_THAT(feed(stream, message_line({{"b", 11}}, kFragment)), IsEmpty());
  EXPECT_EQ(asked_from(stream), 11U);
  EXPECT_THAT(feed(stream, message_line({{"b", 11}, {"c", 11}, {"d", 11}}, kFragment)),
              ElementsAre("d"));
  EXPECT_THAT(feed(stream, message_line({{"e", 11}, {"f", 12}})), ElementsAre("e", "f"));
  EXPECT_EQ(asked_from(stream), 13U);
  // A complete fragment, and the next revision.
  feed(stream, message_line({{"g", 13}}, kFragment));
  EXPECT_EQ(asked_from(stream), 13U);
  EXPECT_THAT(feed(stream, message_line({{"g", 13}, {"h", 14}})), ElementsAre("h"));
}

TEST(EtcdWatchStream, WhatWasToldIsNotToldAgain) {
  WatchStream stream(Watch{{"x"}, 10});
  asked_from(stream);
  feed(stream, message_line({{"a", 12}}));
  EXPECT_THAT(feed(stream, message_line({{"a", 12}, {"b", 5}, {"c", 13}})), ElementsAre("c"));
}

TEST(EtcdWatchStream, EventsOutOfOrderAreRefused) {
  WatchStream stream(Watch{keys_with_prefix("x"), 3});
  stream.begin();
  stream.append(note(9, true) + message_line({{"a", 7}, {"b", 5}}));
  stream.next();
  const auto failure = test::failure_of([&] { stream.next(); });
  EXPECT_EQ(failure.status, ExitStatus::kProtocol);
  EXPECT_EQ(failure.message, "watch etcd: events are not in the order of their revisions");
  EXPECT_EQ(stream.next_revision(), 3U);
}

TEST(EtcdWatchStream, EndsLeaveItWhereItWas) {
  WatchStream stream(Watch{{"x"}, 10});
  asked_from(stream);
  feed(stream, message_line({}, {{"canceled", true}, {"compact_revision", "40"}}));
  EXPECT_EQ(stream.next_revision(), 10U);
  feed(stream, message_line({}, {{"canceled", true}, {"cancel_reason", "why"}}));
  EXPECT_EQ(stream.next_revision(), 10U);
}

TEST(EtcdWatchStream, WhatIsNoMessageIsRefused) {
  for (const std::string& line : {std::string("\n"), std::string("[]\n"), std::string("{\n"),
                                  std::string(kMaxMessageBytes + 1, ' ')}) {
    WatchStream stream(Watch{{"x"}, 10});
    stream.begin();
    stream.append(line);
    EXPECT_EQ(test::failure_of([&] { stream.next(); }).status, ExitStatus::kProtocol);
  }
}

}  // namespace
}  // namespace fo::etcd
