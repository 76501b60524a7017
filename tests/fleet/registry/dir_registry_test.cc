// What only a registry in a folder has to do: see contract_test.cc for the rest.
#include "fleet/registry/dir_registry.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "fleet/record/instance.h"
#include "fleet/registry/dir_store.h"
#include "fleet/registry/records.h"
#include "fleet/registry/watching.h"
#include "loop/run.h"
#include "support/await.h"
#include "support/failure.h"
#include "support/forked.h"
#include "support/must_run.h"
#include "support/soon.h"
#include "support/stderr_text.h"
#include "support/temp_dir.h"
#include "support/text_file.h"

namespace fo::fleet {
namespace {

using base::ExitStatus;
using fo::test::failure_of;
using fo::test::soon;
using fo::test::status_of;
using test::id_number;
using test::kEndpoint;
using test::Maintaining;
using test::record_number;
using test::Watching;

class DirRegistryTest : public testing::Test {
 protected:
  [[nodiscard]] std::unique_ptr<Registry> open() const { return make_dir_registry(path_); }
  std::unique_ptr<RegisteredRecord> register_record(int number) const {
    return loop::run_to_end(open()->register_record(record_number(number), soon()));
  }
  std::vector<Record> list() const { return loop::run_to_end(open()->list("", soon())); }
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }
  [[nodiscard]] std::string record(int number) const { return file(kEndpoint + id_number(number)); }
  [[nodiscard]] std::string lock(int number) const {
    return file(kEndpoint + ("." + id_number(number)) + ".lock");
  }

  fo::test::TempDir folder_;
  std::string path_ = folder_.path("registry");
};

TEST_F(DirRegistryTest, AFolderIsPrivateWhenItIsCreated) {
  EXPECT_EQ(status_of([&] { list(); }), ExitStatus::kUnavailable);
  EXPECT_FALSE(std::filesystem::exists(path_));
  const auto registered = register_record(1);
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0700U);
}

TEST_F(DirRegistryTest, AFolderThatOthersMayWriteToIsRefused) {
  ASSERT_EQ(::mkdir(path_.c_str(), 0700), 0);
  for (const mode_t mode : {0720U, 0702U}) {
    ASSERT_EQ(::chmod(path_.c_str(), mode), 0);
    const auto failure = failure_of([&] { list(); });
    EXPECT_EQ(failure.status, ExitStatus::kNotPermitted);
    EXPECT_EQ(failure.message, "registry 'dir:" + path_ + "': other users may write to it");
    EXPECT_EQ(status_of([&] { register_record(1); }), ExitStatus::kNotPermitted);
  }
  ASSERT_EQ(::chmod(path_.c_str(), 0755), 0);
  EXPECT_TRUE(list().empty());
}

TEST_F(DirRegistryTest, AnotherUsersFolderIsRefused) {
  ASSERT_EQ(::mkdir(path_.c_str(), 0700), 0);
  if (::chown(path_.c_str(), 65534, 65534) != 0) FO_SKIP("root", "needs root");
  const auto failure = failure_of([&] { list(); });
  EXPECT_EQ(failure.status, ExitStatus::kNotPermitted);
  EXPECT_EQ(failure.message, "registry 'dir:" + path_ + "': it belongs to user 65534");
}

TEST_F(DirRegistryTest, WhatIsNotAFolderIsNoRegistry) {
  fo::test::spill(path_, "");
  EXPECT_EQ(status_of([&] { list(); }), ExitStatus::kUnavailable);
  EXPECT_EQ(status_of([&] { register_record(1); }), ExitStatus::kUnavailable);
  ASSERT_EQ(::unlink(path_.c_str()), 0);
  ASSERT_EQ(::symlink(folder_.path().c_str(), path_.c_str()), 0);
  EXPECT_EQ(status_of([&] { register_record(1); }), ExitStatus::kUnavailable);
  ASSERT_EQ(::unlink(path_.c_str()), 0);
  path_ = folder_.path("no/such/folder");
  EXPECT_EQ(status_of([&] { register_record(1); }), ExitStatus::kCannotCreate);
}

TEST_F(DirRegistryTest, FilesThatAreNoRecordsAreIgnored) {
  const auto registered = register_record(1);
  std::filesystem::create_directories(file("cards"));
  fo::test::spill(file("cards/long"), std::string(kMaxRecordBytes + 1, ' '));
  fo::test::spill(file("cards/text"), "text");
  fo::test::spill(file("cards/with space"), "{}");
  fo::test::spill(file("cards/.hidden"), "{}");
  fo::test::spill(file("stray"), "{}");
  fo::test::spill(file(kEndpoint + std::string("unkept")), R"({"id":"unkept"})");
  ASSERT_EQ(::mkfifo(file("cards/fifo").c_str(), 0600), 0);
  ASSERT_EQ(::symlink("/etc/passwd", file("cards/link").c_str()), 0);
  std::filesystem::create_directories(file("cards/folder"));
  const fo::test::StderrText log;
  EXPECT_EQ(list(), std::vector<Record>{record_number(1)});
  EXPECT_TRUE(log.contains("record 'cards/long' is ignored: too long"));
  EXPECT_TRUE(log.contains("record 'cards/text' is ignored: "));
  EXPECT_FALSE(log.contains("unkept"));
}

TEST_F(DirRegistryTest, AnUnkeptRecordIsRemovedAfterAMinute) {
  register_record(1).reset();
  register_record(2).reset();
  const auto old = std::filesystem::file_time_type::clock::now() - std::chrono::minutes(2);
  for (const std::string& name : {record(1), lock(1), file(kEndpoint + std::string(".cleaned"))}) {
    std::filesystem::last_write_time(name, old);
  }
  const auto alive = register_record(3);
  std::filesystem::last_write_time(record(3), old);
  std::filesystem::last_write_time(file(kEndpoint + std::string(".cleaned")), old);
  const auto another = register_record(4);
  EXPECT_FALSE(std::filesystem::exists(record(1)));
  EXPECT_FALSE(std::filesystem::exists(lock(1)));
  EXPECT_TRUE(std::filesystem::exists(record(2)));
  EXPECT_EQ(list().size(), 2U);
}

TEST_F(DirRegistryTest, ReadersNeverKeepAKeyFromItsKeeper) {
  register_record(1).reset();
  std::atomic<bool> is_over = false;
  std::vector<std::thread> readers;
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&] {
      while (!is_over) static_cast<void>(list());
    });
  }
  for (int i = 0; i < 200; ++i) EXPECT_EQ(status_of([&] { register_record(1); }), ExitStatus::kOk);
  is_over = true;
  for (std::thread& reader : readers) reader.join();
}

TEST_F(DirRegistryTest, AStoppedProcessIsAlive) {
  fo::test::Forked keeper([&](int ready) {
    const auto registered = register_record(1);
    fo::test::say(ready, 1);
    ::pause();
    return 0;
  });
  ASSERT_TRUE(keeper.read());
  ASSERT_EQ(::kill(keeper.pid(), SIGSTOP), 0);
  EXPECT_EQ(list().size(), 1U);
  EXPECT_EQ(status_of([&] { register_record(1); }), ExitStatus::kTryAgain);
  keeper.kill();
  EXPECT_TRUE(list().empty());
}

TEST_F(DirRegistryTest, AFolderThatIsAwayEndsNothing) {
  const auto registered = register_record(1);
  const Maintaining maintaining(*registered);
  Watching watch(open(), "instances/");
  EXPECT_EQ(watch.listing(), "put " + id_number(1));
  {
    const fo::test::StderrText log;
    std::filesystem::rename(path_, folder_.path("away"));
    fo::test::spill(path_, "");
    EXPECT_EQ(status_of([&] { list(); }), ExitStatus::kUnavailable);
    EXPECT_EQ(status_of([&] { register_record(2); }), ExitStatus::kUnavailable);
    fo::test::await([&] { return log.contains("Not a directory"); });
    EXPECT_EQ(watch.next(), "stale " + id_number(1));
    ASSERT_EQ(::unlink(path_.c_str()), 0);
    fo::test::await([&] { return log.contains("was lost, and is written again"); });
  }
  // The lock in the old folder is released by now, which is not the end of the process.
  EXPECT_EQ(watch.next(), "put " + id_number(1));
  const auto other = register_record(2);
  EXPECT_EQ(watch.next(), "put " + id_number(2));
  EXPECT_EQ(list(), (std::vector<Record>{record_number(1), record_number(2)}));
}

TEST_F(DirRegistryTest, AReaderWithoutDescriptorsDoesNotTakeAProcessForDead) {
  const auto registered = register_record(1);
  const DirStore store(path_, false);
  fo::test::Forked reader([&](int) {
    // One for the record, and none for its lock.
    const int next = ::dup(STDERR_FILENO);
    ::close(next);
    const rlimit limit{static_cast<rlim_t>(next) + 1, static_cast<rlim_t>(next) + 1};
    ::setrlimit(RLIMIT_NOFILE, &limit);
    return static_cast<int>(
        status_of([&] { static_cast<void>(store.find(kEndpoint + id_number(1))); }));
  });
  EXPECT_EQ(reader.wait(), static_cast<int>(ExitStatus::kOsError));
}

// No more files can be opened while it lives.
class NoMoreDescriptors {
 public:
  NoMoreDescriptors() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    // The lowest free number.
    const int next = ::dup(STDERR_FILENO);
    ::close(next);
    const rlimit none{static_cast<rlim_t>(next), before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  NoMoreDescriptors(const NoMoreDescriptors&) = delete;
  NoMoreDescriptors& operator=(const NoMoreDescriptors&) = delete;
  ~NoMoreDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST_F(DirRegistryTest, AFolderThatCannotBeReadIsNotEmpty) {
  const auto registered = register_record(1);
  const DirStore store(path_, false);
  const NoMoreDescriptors none;
  const auto failure = failure_of([&] {
    store.walk(
        "", "", [](const std::string&) {}, [](const DirStore::RecordPath&) {});
  });
  EXPECT_EQ(failure.status, ExitStatus::kOsError);
  EXPECT_EQ(failure.message, "registry 'dir:" + path_ + "': read folder '.': Too many open files");
}

TEST_F(DirRegistryTest, AWatchWithoutDescriptorsLosesNothing) {
  const auto registered = register_record(1);
  loop::run_to_end(open()->put({"weights/llama", "{}"}, soon()));
  const std::string hidden = file("weights/.hidden");
  fo::test::spill(hidden, "{}");
  Watching watch(open(), "");
  watch.listing();
  const std::string error = "read folder '.': Too many open files\n";
  const fo::test::StderrText log;
  {
    const NoMoreDescriptors none;
    // A new folder is looked at.
    ASSERT_EQ(::mkdir(file("wanted").c_str(), 0700), 0);
    EXPECT_EQ(watch.next(), "stale " + id_number(1));
    ASSERT_EQ(::rmdir(file("wanted").c_str()), 0);
    ASSERT_EQ(::rename(hidden.c_str(), file("weights/mistral").c_str()), 0);
    watch.run_until([&] { return log.contains("read 'weights/mistral': Too many open files\n"); });
  }
  EXPECT_TRUE(log.contains(error));
  EXPECT_EQ(log.text().find(error), log.text().rfind(error)) << "it is logged once";
  // All other changes would be earlier.
  std::vector<std::string> changes{watch.next(), watch.next()};
  std::sort(changes.begin(), changes.end());
  EXPECT_EQ(changes, (std::vector<std::string>{"put " + id_number(1), "put mistral"}));
  loop::run_to_end(registered->deregister(soon()));
  EXPECT_EQ(watch.next(), "gone " + id_number(1));
}

TEST_F(DirRegistryTest, AWatchBeginsWhenTheFoldersCanBeRead) {
  const auto registered = register_record(1);
  // The registry is open before it runs out of descriptors.
  auto registry = open();
  loop::run_to_end(registry->list("", soon()));
  const fo::test::StderrText log;
  std::optional<Watching> watch(std::in_place, std::move(registry), "instances/");
  {
    const NoMoreDescriptors none;
    watch->run_until([&] { return log.contains("read folder '.': Too many open files\n"); });
  }
  EXPECT_EQ(watch->listing(), "put " + id_number(1));
}

TEST_F(DirRegistryTest, ADiskThatIsFullLosesNothing) {
  const auto registered = register_record(1);
  fo::test::Forked writer([&](int) {
    const rlimit none{0, 0};
    ::signal(SIGXFSZ, SIG_IGN);
    ::setrlimit(RLIMIT_FSIZE, &none);
    const auto change = [](const std::string& text) { return with_label(text, "a", "b"); };
    const ExitStatus status = status_of(
        [&] { loop::run_to_end(open()->edit(kEndpoint + id_number(1), change, soon())); });
    return static_cast<int>(status);
  });
  EXPECT_EQ(writer.wait(), static_cast<int>(ExitStatus::kIoError));
  EXPECT_EQ(list(), std::vector<Record>{record_number(1)});
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(file(kEndpoint))) {
    files += entry.is_regular_file() ? 1U : 0U;
  }
  EXPECT_EQ(files, 3U);
}

// A process that is killed between any two steps of a registration leaves nothing that counts.
TEST_F(DirRegistryTest, ARegistrationThatIsKilledLeavesNothingThatCounts) {
  register_record(1).reset();
  for (int i = 0; i < 40; ++i) {
    fo::test::Forked writer([&](int ready) -> int {
      fo::test::say(ready, 1);
      for (;;) {
        const auto registered = register_record(1);
        loop::run_to_end(registered->edit(
            [](const std::string& text) { return with_life(text, Life::kGone); }, soon()));
      }
    });
    ASSERT_TRUE(writer.read());
    std::this_thread::sleep_for(std::chrono::microseconds(i * 37));
    writer.kill();
    EXPECT_TRUE(list().empty());
    EXPECT_EQ(status_of([&] { register_record(1); }), ExitStatus::kOk);
  }
}

}  // namespace
}  // namespace fo::fleet
