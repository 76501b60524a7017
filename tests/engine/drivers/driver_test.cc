#include "engine/drivers/driver_test.h"

#include "os/socket/unix_socket.h"
#include "support/temp_dir.h"

namespace fo::engine {
namespace {

using base::ExitStatus;
using test::failure_of;

class AnyDriverTest : public test::DriverTest {};

TEST_F(AnyDriverTest, UrlsThatAreNoneAreUsageErrors) {
  DriverOptions options;
  for (const EngineKind kind :
       {EngineKind::kVllm, EngineKind::kSglang, EngineKind::kDynamo, EngineKind::kCold}) {
    options.kind = kind;
    for (const char* url : {"", "127.0.0.1:8000", "https://127.0.0.1/", "http://engine:8000",
                            "http://127.0.0.1:8000/v1"}) {
      options.url = url;
      options.system_url = url;
      EXPECT_EQ(failure_of([&] { use(options); }).status, ExitStatus::kUsage) << url;
    }
  }
}

TEST_F(AnyDriverTest, SleepLevelsAreOneAndTwo) {
  DriverOptions options;
  options.url = "http://127.0.0.1:8000/";
  for (const int level : {0, 3}) {
    options.sleep_level = level;
    EXPECT_EQ(failure_of([&] { use(options); }).status, ExitStatus::kUsage);
  }
}

TEST_F(AnyDriverTest, AColdEngineNeverSleepsAndIsJudgedLikeVllm) {
  test::VllmStandIn engine(loop_);
  DriverOptions options;
  options.kind = EngineKind::kCold;
  options.url = engine.url() + "/";
  use(options);
  sleep();
  wake();
  EXPECT_TRUE(engine.asked.empty());
  EXPECT_EQ(check_health(), std::nullopt);
  prove();
  engine.on("GET /metrics", 200, "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n");
  EXPECT_EQ(is_idle(), true);
  EXPECT_THAT(engine.asked,
              testing::ElementsAre("GET /health", "GET /v1/models", testing::_, "GET /metrics"));
}

TEST_F(AnyDriverTest, AnEngineMayListenOnAUnixSocket) {
  const test::TempDir dir;
  http::Server server(
      loop_.io().get_executor(),
      [](const http::Request& request, http::Reply& reply) -> boost::asio::awaitable<void> {
        reply.answer({request.path == "/health" ? 200 : 404, "", "", {}});
        co_return;
      });
  server.listen(os::listen_unix(dir.path("engine.sock")));
  DriverOptions options;
  options.url = "unix:" + dir.path("engine.sock");
  use(options);
  EXPECT_EQ(check_health(), std::nullopt);
}

}  // namespace
}  // namespace fo::engine
