#include "fleet/registry/static_reader.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fleet/record/instance.h"
#include "loop/run.h"
#include "support/failure.h"
#include "support/soon.h"

namespace fo::fleet {
namespace {

std::vector<Record> list(const std::string& urls, const std::string& prefix = "") {
  return loop::run_to_end(make_static_reader(urls)->list(prefix, test::soon()));
}

TEST(StaticReader, HasAWorkerForEachUrl) {
  const std::vector<Record> records = list("http://10.0.0.1:8000,https://worker.example:8443");
  ASSERT_EQ(records.size(), 2U);
  EXPECT_LT(records[0].key, records[1].key);
  for (const Record& record : records) {
    EXPECT_TRUE(record.key.starts_with("instances/static/worker/generate/"));
    const Instance worker = decode_instance(record);
    EXPECT_TRUE(is_instance_id(worker.id));
    EXPECT_EQ(worker.life, Life::kReady);
    EXPECT_EQ(list(worker.url), std::vector<Record>{record});
  }
  EXPECT_TRUE(list("http://10.0.0.1:8000", "cards/").empty());
}

TEST(StaticReader, RefusesInvalidUrls) {
  const auto reason = [](const std::string& urls) {
    const test::Failure failure = test::failure_of([&] { make_static_reader(urls); });
    EXPECT_EQ(failure.status, base::ExitStatus::kUsage);
    return failure.message;
  };
  EXPECT_EQ(reason("http://a:1,http://a:1"), "URL 'http://a:1': appears twice");
  EXPECT_EQ(reason("http://169.254.169.254:80"),
            "URL 'http://169.254.169.254:80': not an address of the allowed networks");
  for (const char* urls : {"", "http://a:1,", ",http://a:1", "a:1", "unix:/x:/"}) {
    EXPECT_TRUE(reason(urls).starts_with("URL '")) << urls;
  }
}

}  // namespace
}  // namespace fo::fleet
