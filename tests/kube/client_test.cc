#include "kube/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "kube/api_server.h"
#include "kube/collections.h"
#include "loop/spawn.h"
#include "loop/test_loop.h"
#include "support/failure.h"
#include "support/temp_dir.h"
#include "support/text_file.h"

namespace fo::kube {
namespace {

using base::Deadline;
using base::ExitStatus;
using nlohmann::json;
using std::chrono::milliseconds;
using test::KubeApi;
using test::soon;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using testing::StartsWith;
using Outcome = Client::Written::Outcome;
using WatchEnd = Client::WatchEnd;

const Collection kSlices{{"discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"}, "ns"};

json config_map(const std::string& name, const json& data = json::object()) {
  return {
      {"apiVersion", "v1"}, {"kind", "ConfigMap"}, {"metadata", {{"name", name}}}, {"data", data}};
}
json slice(const std::string& name, const std::string& service) {
  return {{"apiVersion", "discovery.k8s.io/v1"},
          {"kind", "EndpointSlice"},
          {"metadata", {{"name", name}, {"labels", {{"kubernetes.io/service-name", service}}}}},
          {"endpoints",
           {{{"addresses", {"10.0.0.1"}}, {"conditions", {{"ready", true}, {"serving", true}}}}}}};
}

class KubeClientTest : public testing::Test {
 protected:
  [[nodiscard]] Config config(const std::string& token_file = "") const {
    return {api_.url(), {}, token_file};
  }
  Client::Written create(const Collection& in, const json& object) {
    return loop_.run(client_.create(in, object["metadata"]["name"], object.dump(), soon()));
  }
  Client::Written replace(const json& object) {
    return loop_.run(
        client_.update(kConfigMaps, object["metadata"]["name"], object.dump(), soon()));
  }
  std::optional<Object> get(const std::string& name) {
    return loop_.run(client_.get(kConfigMaps, name, soon()));
  }
  json data_of(const std::string& name) {
    const std::optional<Object> object = get(name);
    return object ? json::parse(object->text)["data"] : json();
  }
  List list(const std::string& labels = "") {
    Selection selection;
    selection.labels = labels;
    return loop_.run(client_.list_all(kSlices, std::move(selection), soon()));
  }
  std::string version_of_list() {
    return loop_.run(client_.list_all(kConfigMaps, {}, soon())).resource_version;
  }

  KubeApi api_{{"--bookmark-every", "0.05"}};
  Client client_{config()};
  test::TestLoop loop_;
};

TEST_F(KubeClientTest, ObjectsAreCreatedAndReplaced) {
  EXPECT_EQ(get("a"), std::nullopt);
  const Client::Written created = create(kConfigMaps, config_map("a", {{"k", "1"}}));
  EXPECT_EQ(created.outcome, Outcome::kDone);
  EXPECT_EQ(created.object.name_space, "ns");
  const Client::Written twice = create(kConfigMaps, config_map("a"));
  EXPECT_EQ(twice.outcome, Outcome::kConflict);
  EXPECT_EQ(twice.reason,
            "create ConfigMap 'ns/a': the API server answers 409: configmaps \"a\" already exists");
  json object = json::parse(created.object.text);
  object["data"]["k"] = "2";
  const Client::Written replaced = replace(object);
  EXPECT_EQ(replaced.outcome, Outcome::kDone);
  EXPECT_NE(replaced.object.resource_version, created.object.resource_version);
  const Client::Written late = replace(object);
  EXPECT_EQ(late.outcome, Outcome::kConflict);
  EXPECT_THAT(late.reason, StartsWith("update ConfigMap 'ns/a': the API server answers 409: "));
  EXPECT_EQ(data_of("a")["k"], "2");
  api_.remove("ConfigMap", "a");
  object["metadata"].erase("uid");
  EXPECT_EQ(replace(object).outcome, Outcome::kAbsent);
  EXPECT_EQ(get("a"), std::nullopt);
}

TEST_F(KubeClientTest, ListsAreOfWhatIsSelectedInPages) {
  for (int i = 0; i < 250; ++i) {
    create(kSlices, slice("s" + std::to_string(i), i % 50 == 0 ? "few" : "many"));
  }
  create(kConfigMaps, config_map("no-slice"));
  EXPECT_THAT(list().objects, SizeIs(250));
  EXPECT_EQ(api_.count("list"), 3);
  const List few = list("kubernetes.io/service-name=few");
  EXPECT_THAT(few.objects, SizeIs(5));
  EXPECT_EQ(json::parse(few.objects[0].text)["endpoints"][0]["conditions"]["ready"], true);
  EXPECT_EQ(json::parse(few.objects[0].text)["kind"], "EndpointSlice");
  List page = loop_.run(client_.list(kSlices, {}, 240, "", soon()));
  EXPECT_THAT(page.objects, SizeIs(240));
  page = loop_.run(client_.list(kSlices, {}, 240, page.next, soon()));
  EXPECT_THAT(page.objects, SizeIs(10));
  EXPECT_EQ(page.next, "");
  EXPECT_EQ(test::status_of([&] { loop_.run(client_.list_all(kSlices, {}, soon(), 200)); }),
            ExitStatus::kProtocol);
}

TEST_F(KubeClientTest, ListThatIsTooOldBeginsAnew) {
  for (int i = 0; i < 101; ++i) create(kSlices, slice("s" + std::to_string(i), "x"));
  const List first = loop_.run(client_.list(kSlices, {}, 100, "", soon()));
  create(kSlices, slice("new", "x"));
  api_.compact();
  try {
    loop_.run(client_.list(kSlices, {}, 100, first.next, soon()));
    ADD_FAILURE() << "it is too old";
  } catch (const Refused& refused) {
    EXPECT_EQ(refused.http_status(), 410);
  }
  // The first list fails at its second page; the second list succeeds.
  api_.fault({{"verb", "list"}, {"count", 1}, {"do", "nothing"}});
  api_.fault({{"verb", "list"}, {"count", 1}, {"status", 410}});
  EXPECT_THAT(list().objects, SizeIs(102));
  api_.fault({{"verb", "list"}, {"status", 410}});
  EXPECT_EQ(test::status_of([&] { list(); }), ExitStatus::kUnavailable);
}

TEST_F(KubeClientTest, RefusalsHaveOneLineAndAStatus) {
  const auto refusal = [&](const json& fault) {
    api_.mend();
    api_.fault(fault);
    return test::failure_of([&] { get("a"); });
  };
  EXPECT_EQ(refusal({{"verb", "get"}, {"status", 403}}).message,
            "get ConfigMap 'ns/a': the API server answers 403: as a test wants it");
  EXPECT_EQ(refusal({{"verb", "get"}, {"status", 403}}).status, ExitStatus::kNotPermitted);
  EXPECT_EQ(refusal({{"verb", "get"}, {"status", 401}}).status, ExitStatus::kNotPermitted);
  EXPECT_EQ(refusal({{"verb", "get"}, {"status", 404}}).status, ExitStatus::kUnavailable);
  EXPECT_EQ(refusal({{"verb", "get"}, {"status", 500}}).status, ExitStatus::kUnavailable);
  EXPECT_EQ(refusal({{"verb", "get"}, {"status", 302}}).status, ExitStatus::kProtocol);
  EXPECT_EQ(refusal({{"verb", "get"}, {"do", "page"}, {"status", 404}}).status,
            ExitStatus::kUnavailable);
  api_.mend();
  api_.fault({{"verb", "get"}, {"status", 429}, {"headers", {{"Retry-After", "3600"}}}});
  try {
    get("a");
    ADD_FAILURE() << "it is refused";
  } catch (const Refused& refused) {
    EXPECT_EQ(refused.retry_after(), std::chrono::seconds(5));
  }
  const KubeApi other({"--no-namespace", "ns"});
  Client without_namespace(Config{other.url(), {}, ""});
  EXPECT_EQ(test::status_of([&] {
              loop_.run(without_namespace.create(kConfigMaps, "a", config_map("a").dump(), soon()));
            }),
            ExitStatus::kNoInput);
}

TEST_F(KubeClientTest, TokenIsReadForEachRequest) {
  const test::TempDir dir;
  test::spill(dir.path("good"), "first");
  test::spill(dir.path("own"), "first\n");
  const KubeApi api({"--token-file", dir.path("good")});
  Client client(Config{api.url(), {}, dir.path("own")});
  const auto status = [&] {
    return test::status_of([&] { loop_.run(client.get(kConfigMaps, "a", soon())); });
  };
  EXPECT_EQ(status(), ExitStatus::kOk);
  test::spill(dir.path("good"), "second");
  EXPECT_EQ(status(), ExitStatus::kNotPermitted);
  test::spill(dir.path("own"), "second\n");
  EXPECT_EQ(status(), ExitStatus::kOk);
  test::spill(dir.path("own"), "");
  EXPECT_EQ(status(), ExitStatus::kConfig);
}

/// A running watch and the events that it has reported.
class Watching {
 public:
  Watching(test::TestLoop& loop, Client& client, std::string version) : version_(version) {
    loop::spawn(
        loop.io(),
        loop::store(client.watch_once(kConfigMaps, {}, version_, soon(),
                                      [this](const WatchEvent& event) {
                                        static const std::vector<std::string> signs{"+", "*", "-"};
                                        if (event.kind == WatchEvent::Kind::kBookmark) {
                                          ++bookmarks;
                                        } else {
                                          reported.push_back(
                                              signs.at(static_cast<std::size_t>(event.kind)) +
                                              event.object.name);
                                        }
                                        return !is_enough;
                                      }),
                    end),
        [this](const std::exception_ptr&) { is_over = true; });
  }
  std::vector<std::string> reported;
  int bookmarks = 0;
  bool is_enough = false;
  bool is_over = false;
  std::optional<WatchEnd> end;
  [[nodiscard]] const std::string& version() const { return version_; }

 private:
  std::string version_;
};

TEST_F(KubeClientTest, WatchTellsOfChangesInOrder) {
  create(kConfigMaps, config_map("before"));
  const std::string version = version_of_list();
  const Client::Written created = create(kConfigMaps, config_map("a"));
  Watching watching(loop_, client_, version);
  loop_.run_until([&] { return watching.reported.size() == 1; });
  replace(json::parse(created.object.text));
  create(kSlices, slice("other", "x"));
  api_.remove("ConfigMap", "before");
  loop_.run_until([&] { return watching.reported.size() == 3; });
  EXPECT_THAT(watching.reported, ElementsAre("+a", "*a", "-before"));
  const int bookmarks = watching.bookmarks;
  loop_.run_until([&] { return watching.bookmarks > bookmarks; });
  watching.is_enough = true;
  loop_.run_until([&] { return watching.is_over; });
  EXPECT_EQ(watching.end, WatchEnd::kStopped);
  EXPECT_EQ(watching.version(), version_of_list());
}

TEST_F(KubeClientTest, WatchThatIsTooOldSaysSo) {
  const std::string version = version_of_list();
  create(kConfigMaps, config_map("a"));
  api_.compact();
  for (const bool is_at_once : {false, true}) {
    if (is_at_once) api_.fault({{"verb", "watch"}, {"status", 410}});
    Watching watching(loop_, client_, version);
    loop_.run_until([&] { return watching.is_over; });
    EXPECT_EQ(watching.end, WatchEnd::kExpired);
    EXPECT_THAT(watching.reported, IsEmpty());
  }
}

TEST_F(KubeClientTest, BookmarksSaveAWatchFromCompaction) {
  Watching watching(loop_, client_, version_of_list());
  loop_.run_until([&] { return watching.bookmarks > 0; });
  for (int i = 0; i < 5; ++i) create(kSlices, slice("s" + std::to_string(i), "x"));
  const int seen = watching.bookmarks;
  loop_.run_until([&] { return watching.bookmarks > seen + 1; });
  api_.compact();
  watching.is_enough = true;
  loop_.run_until([&] { return watching.is_over; });
  create(kConfigMaps, config_map("a"));
  Watching next(loop_, client_, watching.version());
  loop_.run_until([&] { return !next.reported.empty() || next.is_over; });
  EXPECT_THAT(next.reported, ElementsAre("+a"));
  next.is_enough = true;
  loop_.run_until([&] { return next.is_over; });
}

TEST_F(KubeClientTest, WatchThatIsForbiddenFromTheStartIsAnError) {
  api_.fault({{"verb", "watch"}, {"status", 403}});
  Watching watching(loop_, client_, version_of_list());
  loop_.run_until([&] { return watching.is_over; });
  EXPECT_EQ(watching.end, std::nullopt);
}

TEST_F(KubeClientTest, WatchEndsAtItsDeadline) {
  std::string version = version_of_list();
  const auto end =
      loop_.run(client_.watch_once(kConfigMaps, {}, version, Deadline::after(milliseconds(200)),
                                   [](const WatchEvent&) { return true; }));
  EXPECT_EQ(end, WatchEnd::kEnded);
}

}  // namespace
}  // namespace fo::kube
