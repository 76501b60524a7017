#include "route/request/response_ids.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace fo::test {
namespace {

using route::find_response_id;
using route::ResponseIds;

TEST(ResponseIds, KnowTheWorkerOfAResponse) {
  ResponseIds ids;
  ids.add("resp_1", "a");
  ids.add("resp_2", "b");
  EXPECT_EQ(ids.worker_of("resp_1"), "a");
  EXPECT_EQ(ids.worker_of("resp_2"), "b");
  EXPECT_EQ(ids.worker_of("resp_3"), "");
  ids.add("", "a");
  EXPECT_EQ(ids.worker_of(""), "");
}

TEST(ResponseIds, ForgetTheOldest) {
  ResponseIds ids(2);
  ids.add("resp_1", "a");
  ids.add("resp_2", "a");
  // Added again, it is the latest.
  ids.add("resp_1", "b");
  ids.add("resp_3", "a");
  EXPECT_EQ(ids.worker_of("resp_1"), "b");
  EXPECT_EQ(ids.worker_of("resp_2"), "");
  EXPECT_EQ(ids.worker_of("resp_3"), "a");
  using Responses = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(ids.latest(1), (Responses{{"resp_3", "a"}}));
  EXPECT_EQ(ids.latest(9), (Responses{{"resp_1", "b"}, {"resp_3", "a"}}));
}

TEST(FindResponseId, InAnAnswerInOnePieceOrAStream) {
  EXPECT_EQ(find_response_id(R"({"id":"resp_1","object":"response"})"), "resp_1");
  EXPECT_EQ(find_response_id(R"({"object":"response", "id" : "resp_1"})"), "resp_1");
  EXPECT_EQ(find_response_id("event: response.created\n"
                             "data: {\"response\":{\"id\":\"resp_2\",\"output\":[]}}\n\n"),
            "resp_2");
}

TEST(FindResponseId, NotThatOfAnItem) {
  EXPECT_EQ(find_response_id(R"({"output":[{"id":"msg_1"}],"id":"resp_1"})"), "resp_1");
  EXPECT_EQ(find_response_id(R"({"id":"msg_1"})"), "");
  EXPECT_EQ(find_response_id(R"({"id":1,"previous_response_id":"resp_1"})"), "");
}

TEST(FindResponseId, NothingInAnAnswerThatIsIncompleteOrTooLong) {
  const std::string answer = R"({"id":"resp_1")";
  for (std::size_t size = 0; size + 1 < answer.size(); ++size) {
    EXPECT_EQ(find_response_id(answer.substr(0, size)), "") << size;
  }
  EXPECT_EQ(find_response_id(R"({"id":"resp_)" + std::string(300, 'x') + "\"}"), "");
}

}  // namespace
}  // namespace fo::test
