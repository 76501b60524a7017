#include "fleet/card/file_digests.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <set>

#include "base/unique_fd.h"
#include "fleet/card/digest.h"
#include "model_folder.h"
#include "support/failure.h"

namespace fo::fleet {
namespace {

/// Counts the reads of files, by any process, while it lives.
class Reads {
 public:
  explicit Reads(const std::vector<std::string>& paths) {
    for (const std::string& path : paths) {
      EXPECT_GE(::inotify_add_watch(fd_.get(), path.c_str(), IN_ACCESS), 0) << path;
    }
  }
  /// Since the last call.
  [[nodiscard]] bool any() const {
    char buffer[4096];
    bool found = false;
    while (::read(fd_.get(), buffer, sizeof buffer) > 0) found = true;
    return found;
  }

 private:
  base::UniqueFd fd_{::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)};
};

class FileDigests : public ModelFolder {
 protected:
  [[nodiscard]] std::string cache() const { return dir_.path("cache"); }
  [[nodiscard]] std::vector<FileDigest> digests(const std::vector<std::string>& names,
                                                bool verify = false) const {
    return digest_files(folder(), names, {.verify = verify, .cache_folder = cache()});
  }
  [[nodiscard]] test::Failure failure(const std::string& name, bool verify = false) const {
    return test::failure_of([&] { (void)digests({name}, verify); });
  }
  /// A link as in the cache of Hugging Face, to a blob with this name.
  void link_blob(const std::string& name, const std::string& blob, const std::string& content) {
    std::filesystem::create_directories(dir_.path("blobs"));
    test::spill(dir_.path("blobs/" + blob), content);
    std::filesystem::create_symlink("../blobs/" + blob, path(name));
  }
};

TEST_F(FileDigests, AreTheSha256OfTheContent) {
  write("b", "hello");
  write("a", "");
  const auto files = digests({"a", "b"});
  ASSERT_EQ(files.size(), 2);
  EXPECT_EQ(files[0].name, "a");
  EXPECT_EQ(files[0].size, 0);
  EXPECT_EQ(files[0].sha256, sha256_hex(""));
  EXPECT_EQ(files[1].name, "b");
  EXPECT_EQ(files[1].size, 5);
  EXPECT_EQ(files[1].sha256, sha256_hex("hello"));
}

TEST_F(FileDigests, OfManyAndLargeFilesAreInOrder) {
  std::vector<std::string> names;
  base::ByteCount total = 0;
  for (int i = 0; i < 20; ++i) {
    names.push_back("file-" + std::to_string(i));
    write(names.back(), std::string(static_cast<std::size_t>(i) * 300'000, static_cast<char>(i)));
    total += static_cast<base::ByteCount>(i) * 300'000;
  }
  const auto files =
      digest_files(folder(), names, {.on_progress = [&](base::ByteCount done, base::ByteCount all) {
                     EXPECT_LE(done, all);
                     EXPECT_EQ(all, total);
                   }});
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(files[i].name, names[i]);
    EXPECT_EQ(files[i].sha256, sha256_hex(test::slurp(path(names[i]))));
  }
}

TEST_F(FileDigests, AreDigestedByNameSizeAndContent) {
  const auto one = digest_of({{"a", 1, sha256_hex("x")}, {"b", 1, sha256_hex("y")}});
  EXPECT_TRUE(is_digest(one));
  const std::set<std::string> all{one,
                                  digest_of({{"a", 1, sha256_hex("y")}, {"b", 1, sha256_hex("x")}}),
                                  digest_of({{"a", 2, sha256_hex("x")}, {"b", 1, sha256_hex("y")}}),
                                  digest_of({{"c", 1, sha256_hex("x")}, {"b", 1, sha256_hex("y")}}),
                                  digest_of({{"a", 1, sha256_hex("x")}}),
                                  digest_of({})};
  EXPECT_EQ(all.size(), 6);
}

TEST_F(FileDigests, AreNotComputedTwice) {
  write("a", "hello");
  write("b", "world");
  settle(path("a"));
  settle(path("b"));
  const Reads reads({path("a"), path("b")});
  const auto first = digest_of(digests({"a", "b"}));
  EXPECT_TRUE(reads.any());
  EXPECT_EQ(digest_of(digests({"a", "b"})), first);
  EXPECT_FALSE(reads.any());
  EXPECT_EQ(digest_of(digests({"a", "b"}, true)), first);
  EXPECT_TRUE(reads.any());
  // Without a cache nothing is known.
  EXPECT_EQ(digest_of(digest_files(folder(), {"a", "b"}, {})), first);
  EXPECT_TRUE(reads.any());
}

TEST_F(FileDigests, AreComputedAgainAfterAChange) {
  write("a", "hello");
  settle(path("a"));
  ASSERT_EQ(digests({"a"})[0].sha256, sha256_hex("hello"));
  struct stat before {};
  ASSERT_EQ(::stat(path("a").c_str(), &before), 0);
  // The size is the same, and the time of modification is set back.
  write("a", "world");
  const timespec times[2] = {before.st_atim, before.st_mtim};
  ASSERT_EQ(::utimensat(AT_FDCWD, path("a").c_str(), times, 0), 0);
  EXPECT_EQ(digests({"a"})[0].sha256, sha256_hex("world"));
}

TEST_F(FileDigests, OfABlobIsItsName) {
  const std::string name = sha256_hex("hello");
  link_blob("a", name, "hello");
  const Reads reads({path("a")});
  EXPECT_EQ(digests({"a"})[0].sha256, name);
  EXPECT_EQ(digests({"a"})[0].size, 5);
  EXPECT_FALSE(reads.any());
  EXPECT_EQ(digests({"a"}, true)[0].sha256, name);
  EXPECT_TRUE(reads.any());
}

TEST_F(FileDigests, OfADamagedBlobIsFoundWithVerify) {
  const std::string name = sha256_hex("hello");
  link_blob("a", name, "world");
  EXPECT_EQ(digests({"a"})[0].sha256, name);
  const test::Failure wrong = failure("a", true);
  EXPECT_EQ(wrong.status, base::ExitStatus::kBadData);
  EXPECT_EQ(wrong.message, "read '" + path("a") + "': its SHA-256 is " + sha256_hex("world") +
                               ", but it is named " + name);
}

TEST_F(FileDigests, OfOtherLinksAreComputed) {
  // Files that Git keeps itself are named by a SHA-1.
  link_blob("sha1", std::string(40, 'a'), "hello");
  link_blob("upper", std::string(64, 'A'), "hello");
  const std::string digits(64, 'a');
  write(digits, "hello");
  std::filesystem::create_symlink(digits, path("elsewhere"));
  for (const char* name : {"sha1", "upper", "elsewhere"}) {
    EXPECT_EQ(digests({name})[0].sha256, sha256_hex("hello")) << name;
  }
}

TEST_F(FileDigests, NeedFilesThatExist) {
  EXPECT_EQ(failure("a").status, base::ExitStatus::kNoInput);
  EXPECT_EQ(failure("a").message, "open '" + path("a") + "': No such file or directory");
  std::filesystem::create_symlink("../blobs/gone", path("broken"));
  EXPECT_EQ(failure("broken").status, base::ExitStatus::kNoInput);
  EXPECT_EQ(failure("broken").message,
            "open '" + path("broken") + "': it links to '../blobs/gone', which does not exist");
  std::filesystem::create_symlink("loop", path("loop"));
  EXPECT_EQ(failure("loop").status, base::ExitStatus::kNoInput);
}

TEST_F(FileDigests, NeedRegularFiles) {
  std::filesystem::create_directory(path("folder"));
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  std::filesystem::create_symlink("/dev/zero", path("device"));
  for (const char* name : {"folder", "fifo", "device"}) {
    EXPECT_EQ(failure(name).status, base::ExitStatus::kBadData) << name;
    EXPECT_EQ(failure(name).message, "read '" + path(name) + "': not a regular file");
  }
}

TEST_F(FileDigests, RefuseTruncatedWeights) {
  const std::string good = safetensors("hello");
  write("a.safetensors", good);
  EXPECT_EQ(digests({"a.safetensors"})[0].sha256, sha256_hex(good));
  for (std::size_t size = 0; size < good.size(); ++size) {
    write("a.safetensors", good.substr(0, size));
    EXPECT_EQ(failure("a.safetensors").status, base::ExitStatus::kBadData) << size;
  }
}

TEST_F(FileDigests, OfOneBadFileAmongManyAreAnError) {
  std::vector<std::string> names;
  for (int i = 0; i < 10; ++i) {
    names.push_back(std::to_string(i) + ".safetensors");
    write(names.back(), safetensors(std::string(100'000, 'x')));
  }
  write("7.safetensors", "short");
  EXPECT_EQ(test::status_of([&] { (void)digests(names); }), base::ExitStatus::kBadData);
}

}  // namespace
}  // namespace fo::fleet
